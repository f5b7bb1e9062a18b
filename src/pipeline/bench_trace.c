// What a piece of work is made of: every operator waited for and timed, so that the sums are more than the work takes where the
// device runs ahead of the host.
#include <string.h>

#include "base/alloc.h"
#include "pipeline/internal.h"

enum { KINDS = 64 };

typedef struct series {
    double value[VX_BENCH_RUNS];
    int count; // more than VX_BENCH_RUNS are counted and not kept
} series;

struct vx_bench_tally {
    struct {
        const char *op;
        double seconds, flop, bytes;
        series each;
    } kind[KINDS];
    int kinds;
    series stretch; // between two looks at whether numbers are finite: a block of the denoiser; the packed input is the first
    double since;
    bool paused;
};

static void put(series *s, double value)
{
    if (s->count < VX_BENCH_RUNS) s->value[s->count] = value;
    s->count++;
}

static int kept(const series *s)
{
    return s->count < VX_BENCH_RUNS ? s->count : VX_BENCH_RUNS;
}

static void count(void *user, const vx_trace_event *e)
{
    vx_bench_tally *t = user;
    int i = 0;
    if (t->paused || e->seconds == 0) return; // the second output of an operator takes nothing
    while (i < t->kinds && strcmp(t->kind[i].op, e->op) != 0) i++;
    if (i == KINDS) return;
    if (i == t->kinds) t->kind[t->kinds++].op = e->op;
    t->kind[i].seconds += e->seconds;
    t->kind[i].flop += e->flop;
    t->kind[i].bytes += e->bytes;
    put(&t->kind[i].each, e->seconds);
    t->since += e->seconds;
    if (strcmp(e->op, "mark_not_finite") != 0) return;
    put(&t->stretch, t->since);
    t->since = 0;
}

vx_status vx_bench_trace(vx_model *m, vx_bench_tally **tally, vx_bench_work *work, void *user)
{
    vx_device *device = m->device, *trace = NULL;
    vx_bench_tally *t = *tally = vx_alloc_array(1, sizeof *t);
    VX_NEED_MEMORY(t, "a trace");
    VX_TRY(vx_device_trace_create(&trace, device, &(vx_trace_params){ .event = count, .user = t }));
    m->device = trace;
    vx_status s = work(m, t, user);
    m->device = device;
    vx_device_destroy(&trace);
    return s;
}

void vx_bench_pause(vx_bench_tally *tally, bool pause)
{
    tally->paused = pause;
}

json_t *vx_bench_operators(const vx_bench_tally *t)
{
    json_t *list = json_array();
    for (int i = 0; i < t->kinds; i++) {
        const series *each = &t->kind[i].each;
        json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:o}", "operator", t->kind[i].op, "calls",
                                              each->count, "seconds", t->kind[i].seconds, "flop", t->kind[i].flop, "bytes",
                                              t->kind[i].bytes, "median_s", vx_bench_median(each->value, kept(each)), "samples_s",
                                              vx_bench_samples(each->value, kept(each))));
    }
    return list;
}

void vx_bench_tell_blocks(const vx_bench_tally *t, int64_t blocks, json_t *report)
{
    if (kept(&t->stretch) <= blocks) return;
    json_object_set_new(report, "block_median_s", json_real(vx_bench_median(t->stretch.value + 1, (int)blocks)));
    json_object_set_new(report, "block_s", vx_bench_samples(t->stretch.value + 1, (int)blocks));
}
