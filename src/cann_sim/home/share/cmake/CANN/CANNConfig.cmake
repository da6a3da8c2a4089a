# find_package(CANN) for this home: imported targets CANN::ascendcl, CANN::nnopbase, CANN::opapi, CANN::hccl and
# CANN::acl_op_compiler; CANN_INCLUDE_DIRS and CANN_LIBRARY_DIRS for projects that list folders.
get_filename_component(CANN_HOME "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
set(CANN_INCLUDE_DIRS "${CANN_HOME}/include")
set(CANN_LIBRARY_DIRS "${CANN_HOME}/lib64")
foreach(name ascendcl nnopbase opapi hccl acl_op_compiler)
  if(NOT TARGET CANN::${name})
    add_library(CANN::${name} SHARED IMPORTED)
    set_target_properties(CANN::${name} PROPERTIES IMPORTED_LOCATION "${CANN_LIBRARY_DIRS}/lib${name}.so"
                          INTERFACE_INCLUDE_DIRECTORIES "${CANN_INCLUDE_DIRS}")
  endif()
endforeach()
set_property(TARGET CANN::nnopbase APPEND PROPERTY INTERFACE_LINK_LIBRARIES CANN::ascendcl)
set_property(TARGET CANN::opapi APPEND PROPERTY INTERFACE_LINK_LIBRARIES CANN::nnopbase CANN::ascendcl)
