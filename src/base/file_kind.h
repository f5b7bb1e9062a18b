// What a name stands for, in words for messages: "a folder", "a FIFO".
#ifndef VX_BASE_FILE_KIND_H
#define VX_BASE_FILE_KIND_H

#include <sys/types.h>

const char *vx_file_kind(mode_t mode);

#endif
