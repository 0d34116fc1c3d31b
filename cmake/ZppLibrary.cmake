# zpp_library(NAME folder-name SOURCES ... [DEPS ...] [PRIVATE_DEPS ...])
# A static library zpp_<name>, alias zpp::<name>, for one folder. Its public headers are the folder's *.h files, less
# those that end in -inl.h and those under internal/; they are installed as <zpp/folder/header.h>.
function(zpp_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target zpp_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(zpp::${ARG_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${ARG_NAME})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:zpp_options> ${ARG_PRIVATE_DEPS})
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_property(GLOBAL APPEND PROPERTY ZPP_LIBRARIES ${target})
  set_property(GLOBAL APPEND PROPERTY ZPP_LIBRARY_FOLDERS ${ARG_NAME})
endfunction()
