# The CUDA back end: nvcc compiles the kernels, one object each, by commands of our own. With CMake's CUDA language every program
# would be linked by nvcc or the C++ compiler; so it is the C compiler, and nothing depends on a C++ runtime. The CUDA runtime is
# static; cuBLASLt, cuDNN and the driver are looked for when the program runs.
find_program(VORTEX_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT VORTEX_NVCC)
  message(FATAL_ERROR "nvcc was not found: install the CUDA toolkit or set VORTEX_NVCC, or configure with -DVORTEX_CUDA=OFF")
endif()
get_filename_component(cuda_bin ${VORTEX_NVCC} REALPATH)
get_filename_component(cuda_bin ${cuda_bin} DIRECTORY)
find_path(VORTEX_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_bin}/../include ${cuda_bin}/../targets/x86_64-linux/include)
find_library(VORTEX_CUDART libcudart_static.a HINTS ${cuda_bin}/../lib64 ${cuda_bin}/../lib ${cuda_bin}/../targets/x86_64-linux/lib)
if(NOT VORTEX_CUDA_INCLUDE OR NOT VORTEX_CUDART)
  message(FATAL_ERROR "CUDA's headers or libcudart_static.a were not found beside ${VORTEX_NVCC}")
endif()
# An `a` after the number takes the instructions of that family alone. Code of the newest plain number is carried in portable
# form, too: cards that are not listed compile it when the program first runs.
set(VORTEX_CUDA_ARCHITECTURES "80;89;90a;100a;120a;121a" CACHE STRING "CUDA architectures, e.g. 90a")
set(VX_CUDA_FLAGS -std=c++17 -O3 -lineinfo -fmad=false
    --compiler-options -Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics)
set(portable "")
foreach(arch IN LISTS VORTEX_CUDA_ARCHITECTURES)
  list(APPEND VX_CUDA_FLAGS -gencode=arch=compute_${arch},code=sm_${arch})
  if(arch MATCHES "^[0-9]+$")
    set(portable ${arch})
  endif()
endforeach()
if(portable)
  list(APPEND VX_CUDA_FLAGS -gencode=arch=compute_${portable},code=compute_${portable})
endif()

add_library(vx_cuda INTERFACE)
target_include_directories(vx_cuda SYSTEM INTERFACE ${VORTEX_CUDA_INCLUDE})
target_link_libraries(vx_cuda INTERFACE ${VORTEX_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
target_link_options(vx_cuda INTERFACE -Wl,--exclude-libs,libcudart_static.a)

# Adds device/cuda/kernels/*.cu to a library. The objects are in VX_CUDA_OBJECTS afterwards.
function(vx_cuda_kernels library)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/kernels/*.cu)
  set(objects "")
  foreach(kernel IN LISTS kernels)
    get_filename_component(stem ${kernel} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/kernels/${stem}.o)
    add_custom_command(OUTPUT ${object}
                       COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/kernels
                       COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${VORTEX_NVCC} ${VX_CUDA_FLAGS} -I${CMAKE_SOURCE_DIR}/src -MD -MF ${object}.d -c ${kernel} -o ${object}
                       DEPENDS ${kernel} DEPFILE ${object}.d
                       COMMENT "nvcc ${stem}.cu" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${library} PRIVATE ${objects})
  set(VX_CUDA_OBJECTS ${objects} PARENT_SCOPE)
endfunction()
