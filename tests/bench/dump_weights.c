// Every tensor of one component as its network sees it, decoded to f32, by canonical name: for tools/make_formats.py, which
// compares them with the formats' own packages.
//   dump_weights transformer|text|video|audio PATH OUT.safetensors [grouped|interleaved]
// A transformer's rows of QKV are written in thirds and its fc1 gate first, whatever the file's order.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "weights/component_inside.h"

enum { MOST = 65536 };
static vx_safetensors_tensor out[MOST];
static int count;

static void must(vx_status s)
{
    if (s.code == VX_OK) return;
    fprintf(stderr, "dump_weights: VX-%d: %s\n", (int)s.code, s.message);
    exit(1);
}

static float *place(const char *name, int rank, const int64_t *shape)
{
    int64_t n = 1;
    vx_safetensors_tensor *t = &out[count++];
    if (count == MOST) exit(1);
    *t = (vx_safetensors_tensor){ .name = strdup(name), .dtype = VX_F32, .rank = rank };
    for (int i = 0; i < rank; i++) n *= t->shape[i] = shape[i];
    float *data = malloc((size_t)n * sizeof *data + 1);
    if (!data || !t->name) exit(1);
    t->data = data;
    return data;
}

static void widen(vx_tensor t, float *to)
{
    const uint16_t *half = t.data;
    const int64_t n = vx_tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        to[i] = t.dtype == VX_F32 ? vx_f32_of(t)[i] : t.dtype == VX_BF16 ? vx_bf16_to_f32(half[i]) : vx_f16_to_f32(half[i]);
}

// AWQ's factor is of the activation; on a weight it is this.
static void scale_columns(vx_tensor factor, float *row)
{
    float *by = malloc((size_t)vx_tensor_count(factor) * sizeof *by);
    if (!by) exit(1);
    widen(factor, by);
    for (int64_t i = 0; i < factor.shape[0]; i++) row[i] *= by[i];
    free(by);
}

static void decode_row(const vx_weight *w, int64_t column, float *row)
{
    for (int i = 0; i < w->segments; i++) {
        const vx_weight_segment *s = &w->segment[i];
        const int64_t r = column - s->column;
        if (r < 0 || r >= s->weight.shape[0]) continue;
        if (s->quant.kind == VX_QUANT_NONE) {
            widen(vx_tensor_slice(s->weight, 0, r, r + 1), row);
            return;
        }
        vx_quant_decode(&s->quant, s->weight, r, 0, w->k, false, row);
        if (s->quant.pre_scale.rank) scale_columns(s->quant.pre_scale, row);
        return;
    }
    exit(1);
}

// Row i is the product's column[i].
static void write_matrix(const char *name, const vx_weight *w, const int64_t *column)
{
    float *data = place(name, 2, (int64_t[]){ w->n, w->k });
    for (int64_t i = 0; i < w->n; i++) decode_row(w, column ? column[i] : i, data + i * w->k);
}

static int64_t *columns(int64_t n)
{
    int64_t *c = calloc((size_t)n, sizeof *c);
    if (!c) exit(1);
    return c;
}

static void write_qkv(vx_component *c, const char *prefix)
{
    char name[512];
    int rank;
    int64_t dim[VX_MAX_RANK], shape[VX_MAX_RANK], i = 0;
    vx_qkv q;
    snprintf(name, sizeof name, "%sattn.q_norm.weight", prefix);
    vx_component_shape(c, name, &rank, dim);
    const bool split = c->qkv == VX_QKV_SPLIT;
    snprintf(name, sizeof name, "%sattn.%s.weight", prefix, split ? "to_q" : "qkv_proj");
    vx_component_shape(c, name, &rank, shape);
    const int64_t heads = shape[0] / dim[0] / (split ? 1 : 3);
    snprintf(name, sizeof name, "%sattn.qkv_proj", prefix);
    must(vx_component_qkv(c, name, heads, dim[0], shape[1], false, &q));
    int64_t *column = columns(q.weight.n);
    for (int part = 0; part < 3; part++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < dim[0]; d++) column[i++] = q.offset[part] + h * q.head_stride + d;
    snprintf(name, sizeof name, "%sattn.qkv_proj.weight", prefix);
    write_matrix(name, &q.weight, column);
    free(column);
}

static void write_fc1(vx_component *c, const char *prefix, int64_t rows, int64_t k)
{
    char name[512];
    vx_weight w;
    bool gate_first;
    snprintf(name, sizeof name, "%smlp.fc1", prefix);
    must(vx_component_swiglu(c, name, rows / 2, k, false, &w, &gate_first));
    int64_t *column = columns(rows);
    for (int64_t i = 0; i < rows; i++) column[i] = gate_first ? i : (i + rows / 2) % rows;
    snprintf(name, sizeof name, "%smlp.fc1.weight", prefix);
    write_matrix(name, &w, column);
    free(column);
}

static void write_plain(vx_component *c, vx_component_entry *e, int rank, const int64_t *shape)
{
    vx_tensor t;
    if (!e->layer && e->entry->dtype != VX_F32 && e->entry->dtype != VX_BF16 && e->entry->dtype != VX_F16) return;
    must(vx_component_tensor(c, e->name, VX_DTYPE_NONE, rank, shape, &t));
    widen(t, place(e->name, rank, shape));
}

static void write_entry(vx_component *c, vx_component_entry *e)
{
    int rank;
    int64_t shape[VX_MAX_RANK];
    char stem[256];
    vx_weight w = { 0 };
    const bool transformer = c->kind == VX_TRANSFORMER;
    const char *first = strstr(e->name, c->qkv == VX_QKV_SPLIT ? "attn.to_q." : "attn.qkv_proj."),
               *fc1 = strstr(e->name, "mlp.fc1.weight");
    vx_component_entry_shape(e, &rank, shape);
    if (transformer && (strstr(e->name, "attn.to_k.") || strstr(e->name, "attn.to_v."))) return;
    if (transformer && (first || fc1)) {
        snprintf(stem, sizeof stem, "%.*s", (int)((first ? first : fc1) - e->name), e->name);
        if (first) write_qkv(c, stem);
        else write_fc1(c, stem, shape[0], shape[1]);
    } else if (rank == 2 && vx_has_suffix(e->name, ".weight") && e->layer) {
        snprintf(stem, sizeof stem, "%.*s", (int)strlen(e->name) - 7, e->name);
        must(vx_component_linear(c, stem, shape[0], shape[1], false, &w));
        write_matrix(e->name, &w, NULL);
    } else {
        write_plain(c, e, rank, shape);
    }
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = { "transformer", "text", "video", "audio" };
    int kind = 0;
    if (argc < 4) return 2;
    while (kind < VX_COMPONENT_KINDS && strcmp(kinds[kind], argv[1]) != 0) kind++;
    if (kind == VX_COMPONENT_KINDS) return 2;
    const vx_component_params params = { .qkv = argc < 5                          ? VX_QKV_BY_FILE
                                                : strcmp(argv[4], "grouped") == 0 ? VX_QKV_STATED_GROUPED
                                                                                  : VX_QKV_STATED_INTERLEAVED };
    vx_component *c;
    must(vx_component_open_as(&c, (vx_component_kind)kind, argv[2], &params));
    for (int i = 0; i < c->count; i++)
        if (!c->entries[i].companion) write_entry(c, &c->entries[i]);
    must(vx_safetensors_write(argv[3], true, out, count, NULL, 0));
    vx_component_close(&c);
    return 0;
}
