// The Hopper attention kernel against softmax(scale q k^T) v in f64 on the host. Memory that is not q, k or v is NaN, and so is
// the output before each call: what is read beyond a row, or left unwritten, shows.
#include "testing.h"

#include <math.h>

#include "device/cuda/kernels/attention.h"
#include "tensor/dtype.h"
#include "tensor/random.h"

#define assert_cuda(expression)                                                         \
    do {                                                                                \
        cudaError_t e_ = (expression);                                                  \
        if (e_ != cudaSuccess) fail_msg("%s: %s", #expression, cudaGetErrorString(e_)); \
    } while (0)

static int multiprocessors;

typedef enum layout {
    SEPARATE,    // q, k and v of their own, heads padded by 8 and rows by 16 NaN
    INTERLEAVED, // row: q of all heads, k of all heads, v of all heads
    GROUPED,     // row: per head q, k, v
} layout;

typedef struct problem {
    vx_k_attention a;
    uint16_t *host[3];                         // q, k, v as vx_k_attention sees them, but here
    uint16_t *memory[2], *device[2], *written; // owned: inputs here and on the device (one block or two), the output here
    size_t count, out_count;
} problem;

static uint16_t to_act(float x, bool f16)
{
    return f16 ? vx_f32_to_f16(x) : vx_f32_to_bf16(x);
}
static double from_act(uint16_t x, bool f16)
{
    return f16 ? vx_f16_to_f32(x) : vx_bf16_to_f32(x);
}

// Normal deviates into `heads` heads of d at every row of every sequence.
static void fill(vx_random *r, uint16_t *at, int64_t batch, int64_t rows, int64_t heads, int64_t d, int64_t next, int64_t row,
                 int64_t head, float sigma, bool f16)
{
    float x[256];
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < heads; h++) {
                vx_random_normal(r, x, d);
                for (int64_t c = 0; c < d; c++) at[b * next + i * row + h * head + c] = to_act(sigma * x[c], f16);
            }
}

typedef struct shape {
    int64_t sq, skv, heads, kv_heads, d, batch;
    layout layout;
    bool f16;
    float sigma; // of the logits
} shape;

static problem prepare(const shape *s, uint64_t seed)
{
    problem p = { 0 };
    vx_k_attention *a = &p.a;
    const int64_t all = s->heads + 2 * s->kv_heads, rows = s->sq > s->skv ? s->sq : s->skv, tail = 5;
    *a = (vx_k_attention){ .sq = s->sq,
                           .skv = s->skv,
                           .heads = s->heads,
                           .kv_heads = s->kv_heads,
                           .head_dim = s->d,
                           .batch = s->batch,
                           .scale = 1 / sqrtf((float)s->d),
                           .f16 = s->f16 };
    int64_t offset[3] = { 0 };
    if (s->layout == SEPARATE) {
        a->q_head = a->k_head = a->v_head = s->d + 8;
        a->q_row = s->heads * a->q_head + 16;
        a->k_row = a->v_row = s->kv_heads * a->k_head + 16;
        a->q_batch = (s->sq + tail) * a->q_row;
        a->k_batch = a->v_batch = (s->skv + tail) * a->k_row;
        offset[1] = s->batch * a->q_batch;
        offset[2] = offset[1] + s->batch * a->k_batch;
        p.count = (size_t)(offset[2] + s->batch * a->v_batch);
    } else {
        const int64_t step = s->layout == GROUPED ? s->d : s->heads * s->d;
        a->q_head = a->k_head = a->v_head = s->layout == GROUPED ? 3 * s->d : s->d;
        a->q_row = a->k_row = a->v_row = all * s->d;
        a->q_batch = a->k_batch = a->v_batch = (rows + tail) * all * s->d;
        offset[1] = step;
        offset[2] = s->layout == GROUPED ? 2 * step : (s->heads + s->kv_heads) * s->d;
        p.count = (size_t)(s->batch * a->q_batch);
    }
    a->out_head = s->d + (s->layout == SEPARATE ? 8 : 0);
    a->out_row = s->heads * a->out_head;
    a->out_batch = (s->sq + 1) * a->out_row;
    p.out_count = (size_t)(s->batch * a->out_batch);

    p.memory[0] = malloc(2 * p.count);
    p.written = malloc(2 * p.out_count);
    assert_non_null(p.memory[0]);
    assert_non_null(p.written);
    memset(p.memory[0], 0xff, 2 * p.count);
    for (int i = 0; i < 3; i++) p.host[i] = p.memory[0] + offset[i];
    vx_random r;
    vx_random_seed(&r, seed);
    const float sigma = sqrtf(s->sigma);
    fill(&r, p.host[0], s->batch, s->sq, s->heads, s->d, a->q_batch, a->q_row, a->q_head, sigma, s->f16);
    fill(&r, p.host[1], s->batch, s->skv, s->kv_heads, s->d, a->k_batch, a->k_row, a->k_head, sigma, s->f16);
    fill(&r, p.host[2], s->batch, s->skv, s->kv_heads, s->d, a->v_batch, a->v_row, a->v_head, 1, s->f16);
    assert_cuda(cudaMalloc((void **)&p.device[0], 2 * p.count));
    assert_cuda(cudaMalloc((void **)&p.device[1], 2 * p.out_count));
    assert_cuda(cudaMemcpy(p.device[0], p.memory[0], 2 * p.count, cudaMemcpyHostToDevice));
    a->q = p.device[0];
    a->k = p.device[0] + offset[1];
    a->v = p.device[0] + offset[2];
    a->out = p.device[1];
    return p;
}
static void drop(problem *p)
{
    assert_cuda(cudaFree(p->device[0]));
    assert_cuda(cudaFree(p->device[1]));
    free(p->memory[0]);
    free(p->written);
}
static void compute(problem *p, int blocks)
{
    assert_true(vx_k_attention_sm90_takes(&p->a));
    assert_cuda(cudaMemset(p->device[1], 0xff, 2 * p->out_count));
    assert_cuda(vx_k_attention_sm90(&p->a, blocks, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaMemcpy(p->written, p->device[1], 2 * p->out_count, cudaMemcpyDeviceToHost));
}

// ||got - want|| / ||want|| over `count` rows, the last one among them (all if there are fewer). The sequence, row and head of
// what is not finite are printed.
static double error_of(const problem *p, int64_t count)
{
    const vx_k_attention *a = &p->a;
    const int64_t d = a->head_dim, total = a->batch * a->sq * a->heads;
    double *e = malloc(sizeof *e * (size_t)a->skv), difference = 0, norm = 0;
    assert_non_null(e);
    for (int64_t n = 0; n < (count < total ? count : total); n++) {
        const int64_t at = count < total ? total - 1 - n * (total / count) : n;
        const int64_t b = at / (a->sq * a->heads), h = at % a->heads, i = at / a->heads % a->sq, g = h / (a->heads / a->kv_heads);
        const uint16_t *q = p->host[0] + b * a->q_batch + i * a->q_row + h * a->q_head;
        const uint16_t *k = p->host[1] + b * a->k_batch + g * a->k_head, *v = p->host[2] + b * a->v_batch + g * a->v_head;
        double most = -INFINITY, sum = 0, want[256] = { 0 };
        for (int64_t j = 0; j < a->skv; j++) {
            e[j] = 0;
            for (int64_t c = 0; c < d; c++) e[j] += from_act(q[c], a->f16) * from_act(k[j * a->k_row + c], a->f16);
            e[j] *= a->scale;
            most = e[j] > most ? e[j] : most;
        }
        for (int64_t j = 0; j < a->skv; j++) {
            e[j] = exp(e[j] - most);
            sum += e[j];
            for (int64_t c = 0; c < d; c++) want[c] += e[j] * from_act(v[j * a->v_row + c], a->f16);
        }
        for (int64_t c = 0; c < d; c++) {
            const double got = from_act(p->written[b * a->out_batch + i * a->out_row + h * a->out_head + c], a->f16);
            if (!isfinite(got)) print_error("sequence %d, row %d, head %d is not finite\n", (int)b, (int)i, (int)h);
            difference += (got - want[c] / sum) * (got - want[c] / sum);
            norm += want[c] / sum * (want[c] / sum);
        }
    }
    free(e);
    return sqrt(difference / norm);
}
// Every number of the output is finite, and nothing between and behind them was touched.
static void assert_whole(const problem *p)
{
    const vx_k_attention *a = &p->a;
    for (int64_t n = 0; n < (int64_t)p->out_count; n++) {
        const int64_t i = n % a->out_batch / a->out_row, c = n % a->out_batch % a->out_row % a->out_head;
        const bool inside = i < a->sq && c < a->head_dim;
        if (inside != (isfinite(from_act(p->written[n], a->f16)) != 0))
            fail_msg("row %d, channel %d of a head: %s", (int)i, (int)c, inside ? "not written" : "written");
    }
}

static void equals_the_definition(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 1, 1 },       { 2, 2 },       { 63, 63 },    { 64, 64 },   { 65, 65 },     { 127, 127 },
                                        { 128, 128 },   { 129, 129 },   { 175, 175 },  { 176, 176 }, { 177, 177 },   { 191, 257 },
                                        { 193, 193 },   { 300, 300 },   { 352, 353 },  { 1, 1000 },  { 1000, 1000 }, { 513, 7 },
                                        { 1023, 1023 }, { 1024, 1024 }, { 1025, 1025 } };
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int kind = 0; kind < 8; kind++) {
            const shape s = { .sq = sizes[n][0],
                              .skv = sizes[n][1],
                              .heads = 2,
                              .kv_heads = 2,
                              .batch = 1,
                              .d = kind & 1 ? 64 : 128,
                              .f16 = kind & 2,
                              .sigma = kind & 4 ? 4 : 1,
                              .layout = (layout)((n + (size_t)kind) % 3) };
            problem p = prepare(&s, 1000 * n + (uint64_t)kind);
            compute(&p, multiprocessors);
            assert_whole(&p);
            const double error = error_of(&p, 300);
            if (!(error <= 0.003))
                fail_msg("%d x %d, head_dim %d, %s, sigma %d, layout %d: %.5f", (int)s.sq, (int)s.skv, (int)s.d,
                         s.f16 ? "f16" : "bf16", (int)s.sigma, (int)s.layout, error);
            drop(&p);
        }
}

static void takes_batches_and_shared_heads(void **state)
{
    (void)state;
    static const shape shapes[] = {
        { 1797, 1797, 3, 3, 64, 3, INTERLEAVED, true, 1 }, { 200, 333, 6, 2, 128, 2, SEPARATE, false, 1 },
        { 129, 77, 4, 1, 64, 5, SEPARATE, false, 2 },      { 700, 700, 8, 4, 128, 1, INTERLEAVED, true, 1 },
        { 130, 130, 5, 5, 128, 3, GROUPED, false, 1 },
    };
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        problem p = prepare(&shapes[n], 77 + n);
        compute(&p, multiprocessors);
        assert_whole(&p);
        const double error = error_of(&p, 300);
        if (!(error <= 0.003)) fail_msg("case %d: %.5f", (int)n, error);
        drop(&p);
    }
}

// The canonical request's rows, two of its heads: 37,810 keys are 214 tiles and 146 keys.
static void holds_at_full_length(void **state)
{
    (void)state;
    const shape s = { 37810, 37810, 2, 2, 128, 1, INTERLEAVED, false, 1 };
    problem p = prepare(&s, 440420);
    compute(&p, multiprocessors);
    assert_whole(&p);
    const double error = error_of(&p, 100);
    print_message("37,810 rows: relative error %.5f\n", error);
    assert_true(error <= 0.003);
    drop(&p);
}

// Scores that grow along the keys make every maximum rise, scores of 100 leave one key only; a scale of next to nothing, all.
static void follows_a_maximum_that_rises(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        const shape s = { 300, 2000, 2, 2, kind & 1 ? 64 : 128, 1, SEPARATE, false, 1 };
        problem p = prepare(&s, 5 + (uint64_t)kind);
        vx_k_attention *a = &p.a;
        for (int64_t j = 0; kind < 4 && j < s.skv; j++) // keys along the ones, growing in either direction
            for (int64_t h = 0; h < s.heads; h++)
                for (int64_t c = 0; c < s.d; c++) {
                    uint16_t *k = &p.host[1][j * a->k_row + h * a->k_head + c];
                    const int64_t place = kind & 2 ? j : s.skv - 1 - j;
                    *k = vx_f32_to_bf16(vx_bf16_to_f32(*k) * 0.3f + (float)place * 0.004f);
                }
        if (kind >= 4) a->scale = kind == 4 ? 100 : 1e-30f;
        assert_cuda(cudaMemcpy(p.device[0], p.memory[0], 2 * p.count, cudaMemcpyHostToDevice));
        compute(&p, multiprocessors);
        assert_whole(&p);
        const double error = error_of(&p, 300);
        if (!(error <= 0.004)) fail_msg("kind %d: %.5f", kind, error);
        drop(&p);
    }
}

// One block or all, alone or among other heads and sequences: the same bits.
static void gives_the_same_bits_on_any_grid(void **state)
{
    (void)state;
    for (int d = 64; d <= 128; d += 64) {
        const shape s = { 700, 900, 6, 6, d, 2, GROUPED, false, 1 };
        problem p = prepare(&s, 9);
        compute(&p, multiprocessors);
        uint16_t *first = malloc(2 * p.out_count);
        assert_non_null(first);
        memcpy(first, p.written, 2 * p.out_count);
        for (int blocks = 2; blocks <= multiprocessors; blocks += 13) {
            compute(&p, blocks);
            assert_memory_equal(first, p.written, 2 * p.out_count);
        }
        const vx_k_attention whole = p.a;
        p.a.heads = p.a.kv_heads = 1;
        p.a.batch = 0;
        p.a.q = (const uint16_t *)whole.q + whole.q_batch + 3 * whole.q_head;
        p.a.k = (const uint16_t *)whole.k + whole.k_batch + 3 * whole.k_head;
        p.a.v = (const uint16_t *)whole.v + whole.v_batch + 3 * whole.v_head;
        compute(&p, multiprocessors);
        for (int64_t i = 0; i < s.sq; i++)
            assert_memory_equal(first + whole.out_batch + i * whole.out_row + 3 * whole.out_head, p.written + i * whole.out_row,
                                2 * (size_t)d);
        p.a = whole;
        free(first);
        drop(&p);
    }
}

static void leaves_to_others_what_it_cannot_do(void **state)
{
    (void)state;
    const vx_k_attention good = { .sq = 8,
                                  .skv = 8,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 128,
                                  .out_row = 512,
                                  .out_head = 128,
                                  .q_row = 512,
                                  .q_head = 128,
                                  .k_row = 256,
                                  .k_head = 128,
                                  .v_row = 256,
                                  .v_head = 128,
                                  .scale = 1 };
    assert_true(vx_k_attention_sm90_takes(&good));
    vx_k_attention bad[10];
    for (size_t i = 0; i < 10; i++) bad[i] = good;
    bad[0].causal = true;
    bad[1].head_dim = 96;
    bad[2].q = (const void *)8;
    bad[3].k_row = 260;
    bad[4].out_head = 132;
    bad[5].scale = 0;
    bad[6].kv_heads = 3;
    bad[7].skv = 0;
    bad[8].scale = -1;
    bad[9].scale = NAN;
    for (size_t i = 0; i < 10; i++)
        if (vx_k_attention_sm90_takes(&bad[i])) fail_msg("case %d", (int)i);
}

int main(void)
{
    struct cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    if (device.major != 9 || device.minor != 0) {
        printf("no Hopper card: skipped\n");
        return 77;
    }
    multiprocessors = device.multiProcessorCount;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_to_others_what_it_cannot_do), cmocka_unit_test(equals_the_definition),
        cmocka_unit_test(takes_batches_and_shared_heads),     cmocka_unit_test(follows_a_maximum_that_rises),
        cmocka_unit_test(gives_the_same_bits_on_any_grid),    cmocka_unit_test(holds_at_full_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
