// A safetensors header, and a whole file.
//
//   first byte even   [1][u32 size of the data][header]
//   first byte odd    [1][file], opened through a memory file
//
// Promises (reliability specification T29): what is accepted tiles the data; every tensor lies in the file and is found by
// its name; the table written out again parses to the same table.
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/str.h"
#include "weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

static void check_table(const vx_safetensors *st, uint64_t data_size)
{
    uint64_t start = 8 + vx_safetensors_header_bytes(st), end = start;
    for (int i = 0; i < vx_safetensors_count(st); i++) {
        const vx_safetensors_entry *e = vx_safetensors_at(st, i);
        must(e->offset == end);
        must(e->bytes <= data_size && e->offset - start <= data_size - e->bytes);
        must(e->rank >= 0 && e->rank <= VX_MAX_RANK && e->name[0]);
        must(vx_safetensors_find(st, e->name) == e);
        end = e->offset + e->bytes;
    }
    must(!vx_safetensors_at(st, vx_safetensors_count(st)) && !vx_safetensors_find(st, ""));
}

static void put_string(vx_str *out, const char *s)
{
    vx_str_put(out, "\"", 1);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') vx_str_put(out, "\\", 1);
        vx_str_put(out, s, 1);
    }
    vx_str_put(out, "\"", 1);
}

static void check_round_trip(const vx_safetensors *st, uint64_t data_size)
{
    vx_str text = { 0 };
    uint64_t start = 8 + vx_safetensors_header_bytes(st);
    for (int i = 0; i < vx_safetensors_count(st); i++) {
        const vx_safetensors_entry *e = vx_safetensors_at(st, i);
        vx_str_put(&text, i ? "," : "{", 1);
        put_string(&text, e->name);
        vx_str_print(&text, ":{\"dtype\":\"%s\",\"shape\":[", vx_dtype_name(e->dtype));
        for (int d = 0; d < e->rank; d++) vx_str_print(&text, "%s%" PRId64, d ? "," : "", e->shape[d]);
        vx_str_print(&text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", e->offset - start, e->offset - start + e->bytes);
    }
    vx_str_print(&text, "%s", vx_safetensors_count(st) ? "}" : "{}");
    must(!text.failed);
    vx_safetensors *again;
    must(vx_safetensors_parse(&again, text.data, text.size, data_size, "again").code == VX_OK);
    must(vx_safetensors_count(again) == vx_safetensors_count(st));
    for (int i = 0; i < vx_safetensors_count(st); i++) {
        const vx_safetensors_entry *a = vx_safetensors_at(st, i), *b = vx_safetensors_at(again, i);
        must(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes);
        must(memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0);
    }
    vx_safetensors_close(&again);
    vx_str_free(&text);
}

static void check_header(const uint8_t *data, size_t size)
{
    uint32_t data_size;
    if (size < sizeof data_size) return;
    memcpy(&data_size, data, sizeof data_size);
    vx_safetensors *st = NULL;
    vx_status s = vx_safetensors_parse(&st, data + sizeof data_size, size - sizeof data_size, data_size, "header");
    must((s.code == VX_OK) == (st != NULL));
    must(s.code == VX_OK || (s.code / 100 == 31 && s.message[0]));
    if (!st) return;
    check_table(st, data_size);
    check_round_trip(st, data_size);
    vx_safetensors_close(&st);
}

static void check_file(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    vx_safetensors *st = NULL;
    vx_status s = vx_safetensors_open(&st, path, &(vx_safetensors_params){ .input = size % 2 });
    must((s.code == VX_OK) == (st != NULL));
    if (st) {
        check_table(st, size - 8 - vx_safetensors_header_bytes(st));
        unsigned sum = 0;
        for (int i = 0; i < vx_safetensors_count(st); i++) {
            const vx_safetensors_entry *e = vx_safetensors_at(st, i);
            for (uint64_t b = 0; b < e->bytes; b++) sum += ((const uint8_t *)e->data)[b];
            float *copy = malloc(((size_t)e->bytes + 1) * sizeof *copy);
            must(copy != NULL);
            (void)vx_safetensors_read_f32(st, e->name, e->rank, e->shape, copy);
            free(copy);
        }
        must(vx_safetensors_check(st).code == VX_OK && sum <= 255 * size);
    }
    vx_safetensors_close(&st);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (data[0] % 2) check_file(data + 1, size - 1);
    else check_header(data + 1, size - 1);
    return 0;
}
