// A fixed set of worker threads that run numbered pieces of one job. Which thread takes which piece is undefined, so a
// piece must not depend on it: results are the same for any number of threads because pieces are the same.
#ifndef VX_BASE_POOL_H
#define VX_BASE_POOL_H

#include "base/status.h"
#include <stdint.h>

typedef struct vx_pool vx_pool;
// worker is 0..threads-1 (0 is the caller), for private scratch.
typedef void (*vx_pool_fn)(void *ctx, int64_t piece, int worker);

vx_status vx_pool_create(vx_pool **out, int threads); // threads >= 1; 0 = one per processor that this process may use
void vx_pool_destroy(vx_pool **pool);
int vx_pool_threads(const vx_pool *pool);
// Runs fn for 0..pieces-1 and returns when all are done. The caller works too. One caller at a time; no nesting.
void vx_pool_run(vx_pool *pool, int64_t pieces, vx_pool_fn fn, void *ctx);

#endif
