// GGUF files by hand: what a test wants to say wrongly, it can.
#ifndef VX_TEST_GGUF_FILE_H
#define VX_TEST_GGUF_FILE_H

#include "files.h"

typedef struct bytes {
    unsigned char data[1 << 16];
    size_t size;
} bytes;

static inline void add(bytes *b, const void *data, size_t size)
{
    assert_true(b->size + size <= sizeof b->data);
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void add_number(bytes *b, uint64_t value, int size)
{
    for (int i = 0; i < size; i++) b->data[b->size++] = (unsigned char)(value >> 8 * i);
    assert_true(b->size <= sizeof b->data);
}

static inline void add_text(bytes *b, const char *text)
{
    add_number(b, strlen(text), 8);
    add(b, text, strlen(text));
}

static inline void add_head(bytes *b, uint32_t version, uint64_t tensors, uint64_t pairs)
{
    b->size = 0;
    add(b, "GGUF", 4);
    add_number(b, version, 4);
    add_number(b, tensors, 8);
    add_number(b, pairs, 8);
}

// ne in ggml's order, the contiguous axis first.
static inline void add_tensor(bytes *b, const char *name, int dims, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    add_text(b, name);
    add_number(b, (uint64_t)dims, 4);
    for (int i = 0; i < dims; i++) add_number(b, ne[i], 8);
    add_number(b, type, 4);
    add_number(b, offset, 8);
}

static inline void add_data(bytes *b, size_t alignment, size_t size)
{
    while (b->size % alignment) add_number(b, 0, 1);
    for (size_t i = 0; i < size; i++) add_number(b, i, 1);
}

#define NE(...)                                                                       \
    (int)(sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t)), (const uint64_t[]) \
    {                                                                                 \
        __VA_ARGS__                                                                   \
    }

#endif
