# Compile options that every target of this project shares.
add_library(zpp_options INTERFACE)
target_include_directories(zpp_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(zpp_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  # One arithmetic for scalar, SIMD and device code: a*b+c must never become a fused multiply-add.
  -ffp-contract=off
  # g++ 12 warns of an overlap in the library's own "literal" + std::string (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(ZPP_WERROR)
  target_compile_options(zpp_options INTERFACE -Werror)
endif()
if(ZPP_SANITIZE)
  target_compile_options(zpp_options INTERFACE -fsanitize=${ZPP_SANITIZE} -fno-omit-frame-pointer -g1
                         -fno-sanitize-recover=all)
  target_link_options(zpp_options INTERFACE -fsanitize=${ZPP_SANITIZE})
endif()

if(ZPP_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ZPP_BUILD_FUZZERS=ON needs clang: libFuzzer comes with it")
  endif()
  # Everything is instrumented; only the fuzz targets get libFuzzer's main().
  target_compile_options(zpp_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -g1
                         -fno-sanitize-recover=all)
  target_link_options(zpp_options INTERFACE -fsanitize=address,undefined)
endif()

find_program(ZPP_CCACHE ccache)
if(ZPP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ZPP_CCACHE})
endif()
