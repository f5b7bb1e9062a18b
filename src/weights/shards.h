// The files of one component: one file, or the set that an index names. Every file is mapped once (inside
// this room only).
#ifndef VX_WEIGHTS_SHARDS_H
#define VX_WEIGHTS_SHARDS_H

#include "weights/container.h"

typedef struct vx_shards {
    vx_container *file; // those of an index are all safetensors
    int files;
    int tensors;    // in all files; no name is there twice
    uint64_t bytes; // of all tensors
    bool indexed;
    bool other_total; // the index says another size of all tensors
} vx_shards;

vx_status vx_shards_open_file(vx_shards *out, const char *path);
// One more file beside it: a vision tower that was published by itself.
vx_status vx_shards_add_file(vx_shards *s, const char *path);
// The index's folder holds the files. Errors: VX_ERR_INDEX (a name that is no bare file name, a missing shard, a tensor that
// is not where the index says or not in the index), VX_ERR_TENSOR_DUPLICATE (in two shards), and those of the files. A total
// size that differs is logged as a warning.
vx_status vx_shards_open_index(vx_shards *out, const char *path);
void vx_shards_close(vx_shards *s);

#endif
