# Installs the libraries, their headers and a CMake package: find_package(zpp) gives zpp::zpp.
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY ZPP_LIBRARIES)
get_property(folders GLOBAL PROPERTY ZPP_LIBRARY_FOLDERS)

add_library(zpp INTERFACE)
add_library(zpp::zpp ALIAS zpp)
target_link_libraries(zpp INTERFACE ${libraries})

# Inside the tree headers include each other as "quant/codec.h". Installed, that would let a consumer's own quant/
# folder shadow ours, so the installed copies say <zpp/quant/codec.h>.
# Of the headers under internal/ only those go along that a public header needs.
set(staged ${PROJECT_BINARY_DIR}/installed-headers)
file(REMOVE_RECURSE ${staged})  # a header that is public no more
set(pending "")
foreach(folder IN LISTS folders)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  list(FILTER headers EXCLUDE REGEX "-inl\\.h$|/internal/")
  list(APPEND pending ${headers})
endforeach()
set(installed "")
while(pending)
  list(POP_FRONT pending header)
  if(header IN_LIST installed)
    continue()
  endif()
  list(APPEND installed ${header})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} needed REGEX "^#include \"[^\"]*/internal/[^\"]+\"")
  list(TRANSFORM needed REPLACE "^#include \"([^\"]+)\".*" "\\1")
  list(APPEND pending ${needed})
  file(READ ${PROJECT_SOURCE_DIR}/${header} text)
  string(REGEX REPLACE "#include \"(common|quant|topology|collectives|zero)/([^\"]+)\""
         "#include <zpp/\\1/\\2>" text "${text}")
  file(CONFIGURE OUTPUT ${staged}/zpp/${header} CONTENT "${text}" @ONLY)
endwhile()

install(DIRECTORY ${staged}/zpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ${libraries} zpp EXPORT zppTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT zppTargets NAMESPACE zpp:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/zpp)
configure_package_config_file(cmake/zppConfig.cmake.in zppConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/zpp)
write_basic_package_version_file(zppConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/zppConfig.cmake ${PROJECT_BINARY_DIR}/zppConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/zpp)
