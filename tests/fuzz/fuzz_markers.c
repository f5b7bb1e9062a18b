// What says how layers are quantised, any text, in a file that is otherwise sound: a marker tensor, the metadata, or (third way)
// any header of a transformer's or a text encoder's file. What opens, binds and decodes stays in its bounds.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weights/component_inside.h"
#include "weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 16, K = 64 };
static char folder[64], path[96];

static void must(bool condition)
{
    if (!condition) abort();
}

static void remove_all(void)
{
    unlink(path);
    rmdir(folder);
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/vortex-fuzz-XXXXXX");
    must(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/fl2va.safetensors", folder);
    atexit(remove_all);
}

// A layer of each number format, with all companions that any format knows.
static void write_layers(const char *marker, size_t size, const char *metadata)
{
    static uint8_t zeros[128 * 16];
    static const struct {
        const char *layer;
        vx_dtype dtype;
        int64_t width;
    } layers[] = { { "blocks.0.mlp.fc1", VX_I8, K },
                   { "blocks.0.mlp.fc2", VX_F8_E4M3, K },
                   { "blocks.1.mlp.fc1", VX_U8, K / 2 } };
    static char names[3][4][64];
    vx_safetensors_tensor t[16];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        static const char *const endings[] = { ".weight", ".weight_scale", ".weight_scale_2", ".comfy_quant" };
        for (int e = 0; e < 4; e++) snprintf(names[i][e], sizeof names[i][e], "%s%s", layers[i].layer, endings[e]);
        t[n++] = (vx_safetensors_tensor){ names[i][0], layers[i].dtype, 2, { N, layers[i].width }, zeros };
        if (i == 2) t[n++] = (vx_safetensors_tensor){ names[i][1], VX_F8_E4M3, 2, { 128, 4 }, zeros };
        else t[n++] = (vx_safetensors_tensor){ names[i][1], VX_F32, 1, { N }, zeros };
        if (i == 2) t[n++] = (vx_safetensors_tensor){ names[i][2], VX_F32, 1, { 1 }, zeros };
        if (marker && size) t[n++] = (vx_safetensors_tensor){ names[i][3], VX_U8, 1, { (int64_t)size }, marker };
    }
    t[n++] = (vx_safetensors_tensor){ "audio_patch_proj.weight", VX_F32, 1, { 1 }, zeros };
    const vx_safetensors_pair pairs[] = { { "config", "{\"transformer\":{\"image_model\":\"minimax_h3\"}}" },
                                          { "_quantization_metadata", metadata } };
    must(vx_safetensors_write(path, true, t, n, pairs, metadata ? 2 : 1).code == VX_OK);
}

static void write_file(const uint8_t *data, size_t size)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

// Everything that a network could ask for.
static void ask(vx_component *c)
{
    for (int i = 0; i < c->count; i++) {
        vx_component_entry *e = &c->entries[i];
        if (!e->layer) continue;
        int rank;
        int64_t shape[VX_MAX_RANK];
        vx_component_entry_shape(e, &rank, shape);
        if (rank == 2 && shape[0] > 0 && shape[1] > 0 && vx_has_suffix(e->name, ".weight")) {
            char name[256];
            vx_weight w = { 0 };
            if (snprintf(name, sizeof name, "%.*s", (int)strlen(e->name) - 7, e->name) < (int)sizeof name &&
                vx_component_linear(c, name, shape[0], shape[1], false, &w).code == VX_OK) {
                must(w.segment[0].quant.kind != VX_QUANT_NONE);
                must(vx_quant_check(&w.segment[0].quant, w.segment[0].weight).code == VX_OK);
            }
        }
        vx_status s = vx_component_decode(c, e);
        must(s.code == VX_OK || s.message[0]);
    }
}

static void open_as(vx_component_kind kind)
{
    vx_component *c;
    vx_status s = vx_component_open(&c, kind, path);
    must((s.code == VX_OK) == (c != NULL));
    if (c) ask(c);
    else must(s.code / 1000 == 3 && s.message[0]);
    vx_component_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folder[0]) make_folder();
    if (size < 1) return 0;
    const uint8_t way = data[0];
    data++, size--;
    if (way % 4 >= 2) {
        write_file(data, size);
        open_as(way % 4 == 2 ? VX_TRANSFORMER : VX_TEXT_ENCODER);
        return 0;
    }
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    // Metadata is text of a JSON header: what is no UTF-8 cannot be there.
    if (way % 4 == 0) write_layers(text, size, NULL);
    else if (vx_utf8_valid(text, strlen(text), NULL)) write_layers(NULL, 0, text);
    free(text);
    open_as(VX_TRANSFORMER);
    return 0;
}
