# Headers, the CMake package `tessera`, and a pkg-config file. Nothing installed depends on the machine.
# A project that adds tessera and does not install it (TESSERA_INSTALL) can still export targets that link it, which
# needs these rules; then they are followed for `cmake --install … --component tessera` alone.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/tessera)
set(when COMPONENT tessera)
if(NOT TESSERA_INSTALL)
  list(APPEND when EXCLUDE_FROM_ALL)
endif()
install(TARGETS tessera EXPORT tessera FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${when}
  FILE_SET moved_headers DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${when})
install(TARGETS tessera_native EXPORT tessera ${when})
install(EXPORT tessera NAMESPACE tessera:: FILE tessera-targets.cmake DESTINATION ${package_dir} ${when})
export(EXPORT tessera NAMESPACE tessera:: FILE tessera-targets.cmake)

configure_package_config_file(cmake/tessera-config.cmake.in tessera-config.cmake INSTALL_DESTINATION ${package_dir})
configure_file(cmake/tessera-config-version.cmake.in tessera-config-version.cmake @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tessera-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/tessera-config-version.cmake
  cmake/tessera-build-type.cmake cmake/tessera-variants.cmake cmake/tessera-compiled-types.cmake
  DESTINATION ${package_dir} ${when})
install(DIRECTORY src DESTINATION ${package_dir} ${when} PATTERN CMakeLists.txt EXCLUDE)  # for other instruction sets

configure_file(cmake/tessera.pc.in tessera.pc @ONLY)
install(FILES scripts/gdb/tessera.py DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/gdb ${when})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig ${when})

# `cpack -G DEB` in a build folder makes libtessera-dev, and libtessera-compiled-dev if TESSERA_BUILD_COMPILED.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_PACKAGE_CONTACT "the tessera developers")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_COMPONENTS_ALL tessera)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_TESSERA_PACKAGE_NAME libtessera-dev)
  set(CPACK_DEBIAN_TESSERA_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_TESSERA_PACKAGE_DEPENDS "libxsimd-dev (>= 12.1), libxsimd-dev (<< 15)")
  if(TESSERA_BUILD_COMPILED)
    list(APPEND CPACK_COMPONENTS_ALL compiled)
    set(CPACK_DEBIAN_COMPILED_PACKAGE_NAME libtessera-compiled-dev)
    set(CPACK_DEBIAN_COMPILED_PACKAGE_DEPENDS "libtessera-dev (= ${PROJECT_VERSION})")
  endif()
  include(CPack)
endif()
