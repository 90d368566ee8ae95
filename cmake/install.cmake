# Headers, the CMake package `tessera`, and a pkg-config file. Nothing installed depends on the machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/tessera)
install(TARGETS tessera tessera_native EXPORT tessera FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tessera NAMESPACE tessera:: FILE tessera-targets.cmake DESTINATION ${package_dir})

configure_package_config_file(cmake/tessera-config.cmake.in tessera-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(tessera-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tessera-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/tessera-config-version.cmake
  cmake/tessera-build-type.cmake cmake/tessera-variants.cmake DESTINATION ${package_dir})

configure_file(cmake/tessera.pc.in tessera.pc @ONLY)
install(FILES scripts/gdb/tessera.py DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/gdb)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)

# `cpack -G DEB` in a build folder makes libtessera-dev.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_PACKAGE_CONTACT "the tessera developers")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_DEBIAN_PACKAGE_NAME libtessera-dev)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libxsimd-dev (>= 12.1), libxsimd-dev (<< 15)")
  include(CPack)
endif()
