// SHA-256 (FIPS 180-4), for the hashes of latents in results.
#ifndef VX_BASE_SHA256_H
#define VX_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct vx_sha256 {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[64];
} vx_sha256;
void vx_sha256_init(vx_sha256 *s);
void vx_sha256_put(vx_sha256 *s, const void *data, size_t size);
void vx_sha256_hex(vx_sha256 *s, char out[65]);

#endif
