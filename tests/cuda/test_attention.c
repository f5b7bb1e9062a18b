// Attention on CUDA beside the CPU's: every width, grouped heads, causal, tails, any strides; the same bits each time; cuDNN
// beside the own kernels. What lies between rows is NaN on both sides, and so is the output before each call.
#include "testing.h"

#include <math.h>

#include "base/alloc.h"
#include "device/arena.h"
#include "device/cuda/cuda.h"
#include "device/operators.h"

typedef enum layout { GAPS, PARTS, ODD } layout; // between rows; q, k, v of one row per head; strides that no vector load likes

typedef struct case_ {
    int64_t sq, skv, heads, kv_heads, d;
    vx_dtype t;
    bool causal;
    layout layout;
    float scale, spread; // 0: the default; the queries are multiplied by spread: large ones make the running maximum move
} case_;

static const case_ cases[] = {
    { 1, 1, 1, 1, 8, VX_BF16, false, GAPS, 0, 1 },           { 1, 777, 3, 3, 128, VX_BF16, false, GAPS, 0, 3 },
    { 300, 1, 2, 1, 64, VX_BF16, false, GAPS, 0, 1 },        { 33, 45, 3, 3, 24, VX_BF16, false, GAPS, 0, 3 },
    { 200, 333, 4, 2, 32, VX_BF16, false, GAPS, 0, 3 },      { 200, 333, 4, 2, 40, VX_BF16, false, ODD, 0, 3 },
    { 513, 513, 4, 4, 64, VX_BF16, false, PARTS, 0, 3 },     { 513, 513, 4, 4, 64, VX_BF16, true, PARTS, 0, 3 },
    { 400, 400, 4, 4, 72, VX_BF16, false, GAPS, 0, 3 },      { 130, 300, 2, 2, 80, VX_BF16, false, GAPS, 0, 3 },
    { 130, 300, 2, 2, 96, VX_BF16, false, GAPS, 0, 3 },      { 130, 300, 2, 2, 120, VX_BF16, false, GAPS, 0, 3 },
    { 600, 600, 4, 4, 128, VX_BF16, false, PARTS, 0, 5 },    { 301, 301, 64, 8, 128, VX_BF16, true, GAPS, 0, 5 },
    { 127, 127, 2, 2, 128, VX_BF16, true, GAPS, 0, 5 },      { 129, 1000, 2, 2, 128, VX_BF16, false, ODD, 0, 3 },
    { 333, 333, 2, 2, 160, VX_BF16, true, GAPS, 0, 3 },      { 333, 200, 2, 1, 192, VX_BF16, false, GAPS, 0, 3 },
    { 333, 333, 2, 1, 200, VX_BF16, true, ODD, 0, 3 },       { 333, 1000, 2, 1, 256, VX_BF16, false, GAPS, 0, 3 },
    { 200, 530, 2, 2, 128, VX_BF16, false, GAPS, -0.5f, 3 }, { 200, 530, 2, 2, 128, VX_BF16, false, GAPS, 0.7f, 10 },
    { 513, 513, 4, 4, 64, VX_F16, false, PARTS, 0, 3 },      { 400, 400, 4, 2, 72, VX_F16, true, GAPS, 0, 3 },
    { 300, 700, 2, 2, 128, VX_F16, false, GAPS, 0, 3 },      { 1100, 1100, 2, 1, 64, VX_BF16, true, GAPS, 0, 5 },
    { 40, 1301, 2, 2, 200, VX_BF16, false, GAPS, 0, 5 },     { 1, 1, 1, 1, 8, VX_F32, false, GAPS, 0, 1 },
    { 33, 45, 3, 3, 24, VX_F32, false, GAPS, 0, 3 },         { 513, 513, 4, 4, 64, VX_F32, false, PARTS, 0, 3 },
    { 400, 400, 4, 2, 72, VX_F32, true, GAPS, 0, 3 },        { 301, 301, 16, 2, 128, VX_F32, true, GAPS, 0, 5 },
    { 300, 777, 2, 2, 128, VX_F32, false, ODD, 0, 5 },       { 333, 1000, 2, 1, 256, VX_F32, false, GAPS, 0, 3 },
    { 333, 333, 2, 1, 200, VX_F32, true, GAPS, 0, 3 },       { 200, 530, 2, 2, 128, VX_F32, false, GAPS, -0.5f, 3 },
    { 1023, 1023, 1, 1, 128, VX_BF16, false, PARTS, 0, 3 },  { 1024, 1024, 1, 1, 128, VX_BF16, false, PARTS, 0, 3 },
    { 1025, 1025, 1, 1, 128, VX_BF16, false, PARTS, 0, 3 },  { 1023, 1025, 2, 1, 64, VX_BF16, false, GAPS, 0, 3 },
    { 1024, 1023, 2, 1, 64, VX_F16, false, GAPS, 0, 3 },     { 1025, 1024, 2, 1, 64, VX_BF16, false, ODD, 0, 3 },
    { 1023, 1023, 1, 1, 72, VX_BF16, true, GAPS, 0, 3 },     { 1024, 1024, 1, 1, 72, VX_BF16, true, GAPS, 0, 3 },
    { 1025, 1025, 1, 1, 72, VX_BF16, true, GAPS, 0, 3 },     { 1024, 1023, 1, 1, 64, VX_F32, false, GAPS, 0, 3 },
    { 1025, 1024, 1, 1, 64, VX_F32, false, GAPS, 0, 3 },     { 1025, 1025, 1, 1, 64, VX_F32, true, GAPS, 0, 3 },
};
enum { CASES = sizeof cases / sizeof cases[0] };

static vx_device *cpu;

static const char *says(const case_ *c)
{
    static char text[160];
    snprintf(text, sizeof text, "%d x %d, heads %d/%d, width %d, %s%s, layout %d, scale %g", (int)c->sq, (int)c->skv,
             (int)c->heads, (int)c->kv_heads, (int)c->d, vx_dtype_name(c->t), c->causal ? ", causal" : "", (int)c->layout,
             (double)c->scale);
    return text;
}

// ---- operands: q, k, v, out on both sides ----
typedef struct operand {
    vx_tensor near, far; // the same strides
    vx_tensor memory;    // all of the far one's
    void *host;
} operand;
enum { Q, K, V, OUT, OPERANDS };

static uint64_t seed = 7;
static float next_number(void)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
    return sum * 0.87f; // about normal, deviation 1
}

static size_t element(vx_dtype t)
{
    return (size_t)vx_dtype_bits(t) / 8;
}
static void put(void *p, vx_dtype t, int64_t i, float x)
{
    if (t == VX_F32) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = t == VX_BF16 ? vx_f32_to_bf16(x) : vx_f32_to_f16(x);
}
static double get(const void *p, vx_dtype t, int64_t i)
{
    if (t == VX_F32) return (double)((const float *)p)[i];
    const uint16_t h = ((const uint16_t *)p)[i];
    return (double)(t == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h));
}
static int64_t place(vx_tensor t, int64_t row, int64_t head, int64_t column)
{
    return row * t.stride[0] + head * t.stride[1] + column;
}

static operand make_operand(vx_device *dev, vx_arena *arena, const case_ *c, int which)
{
    const int64_t rows = which == Q || which == OUT ? c->sq : c->skv, heads = which == Q || which == OUT ? c->heads : c->kv_heads;
    int64_t head_stride = c->d, row_stride = heads * c->d + 8;
    if (c->layout == PARTS && which != OUT) {
        head_stride = 3 * c->d;
        row_stride = heads * head_stride;
    } else if (c->layout == ODD) {
        head_stride = c->d + 3;
        row_stride = heads * head_stride + 5;
    }
    const int64_t count = rows * row_stride;
    operand o = { .host = vx_alloc((size_t)count * element(c->t)), .memory = vx_arena_tensor(arena, c->t, count) };
    assert_non_null(o.host);
    assert_non_null(o.memory.data);
    for (int64_t i = 0; i < count; i++) put(o.host, c->t, i, NAN);
    o.near = vx_tensor_of(o.host, c->t, rows, heads, c->d);
    o.near.stride[0] = row_stride;
    o.near.stride[1] = head_stride;
    o.far = o.near;
    o.far.data = o.memory.data;
    for (int64_t r = 0; r < rows && which != OUT; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t x = 0; x < c->d; x++)
                put(o.host, c->t, place(o.near, r, h, x), next_number() * (which == Q ? c->spread : 1));
    assert_ok(vx_upload(dev, o.memory, o.host));
    return o;
}

static size_t bytes_of(const operand *o)
{
    return vx_tensor_bytes(o->memory);
}

// Runs twice and demands the same bytes; the result lies in the output's host memory, which the caller owns.
static void run_on(vx_device *dev, const case_ *c, operand o[OPERANDS], void *result)
{
    const vx_attention_params params = { .scale = c->scale, .causal = c->causal };
    void *again = vx_alloc(bytes_of(&o[OUT]));
    assert_non_null(again);
    for (int pass = 0; pass < 2; pass++) {
        assert_ok(vx_upload(dev, o[OUT].memory, o[OUT].host));
        assert_ok(vx_attention(dev, o[OUT].far, o[Q].far, o[K].far, o[V].far, &params));
        assert_ok(vx_download(dev, pass ? again : result, o[OUT].memory));
    }
    if (memcmp(again, result, bytes_of(&o[OUT])) != 0) fail_msg("%s: another result the second time", says(c));
    vx_free(again);
}

static void assert_close(const case_ *c, vx_tensor want, const void *found, double allowed)
{
    double difference = 0, size = 0;
    const int64_t end = want.shape[0] * want.stride[0];
    bool *inside = vx_alloc_array((size_t)end, sizeof *inside);
    assert_non_null(inside);
    for (int64_t r = 0; r < c->sq; r++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t x = 0; x < c->d; x++) {
                const int64_t at = place(want, r, h, x);
                const double w = get(want.data, c->t, at), d = get(found, c->t, at) - w;
                difference += d * d;
                size += w * w;
                inside[at] = true;
            }
    const double relative = sqrt(difference / size);
    if (!(relative <= allowed)) fail_msg("%s: off by %g, allowed %g", says(c), relative, allowed);
    for (int64_t i = 0; i < end; i++)
        if (!inside[i] && !isnan(get(found, c->t, i))) fail_msg("%s: wrote beside the result, at %d", says(c), (int)i);
    vx_free(inside);
}

static double allowed_for(vx_dtype t)
{
    return t == VX_F32 ? 1e-5 : t == VX_F16 ? 1e-3 : 4e-3;
}

static vx_device *make_cuda(vx_attention_choice choice)
{
    vx_device *dev = NULL;
    assert_ok(vx_device_cuda_create(&dev, &(vx_cuda_params){ .attention = choice }));
    vx_cuda_of(dev)->short_products = 0; // the kernels of long rows on short ones, too
    return dev;
}

// The CPU's result into o[OUT].host. Half precision: of f32 arithmetic on the same numbers, rounded at the end alone.
static void expect(const case_ *c, operand o[OPERANDS])
{
    const vx_attention_params params = { .scale = c->scale, .causal = c->causal };
    vx_tensor t[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        t[i] = o[i].near;
        if (c->t != VX_F16) continue;
        const int64_t count = t[i].shape[0] * t[i].stride[0];
        float *const wide = vx_alloc_array((size_t)count, sizeof *wide);
        assert_non_null(wide);
        for (int64_t j = 0; j < count; j++) wide[j] = (float)get(o[i].host, VX_F16, j);
        t[i].dtype = VX_F32;
        t[i].data = wide;
    }
    assert_ok(vx_attention(cpu, t[OUT], t[Q], t[K], t[V], &params));
    if (c->t != VX_F16) return;
    for (int64_t j = 0; j < t[OUT].shape[0] * t[OUT].stride[0]; j++) put(o[OUT].host, VX_F16, j, vx_f32_of(t[OUT])[j]);
    for (int i = 0; i < OPERANDS; i++) vx_free(t[i].data);
}

static void run_case(vx_device *dev, const case_ *c)
{
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(dev, &arena, 64 << 20));
    operand o[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) o[i] = make_operand(dev, arena, c, i);
    void *found = vx_alloc(bytes_of(&o[OUT]));
    assert_non_null(found);
    run_on(dev, c, o, found);
    expect(c, o);
    assert_close(c, o[OUT].near, found, allowed_for(c->t));
    for (int i = 0; i < OPERANDS; i++) vx_free(o[i].host);
    vx_free(found);
    vx_arena_destroy(&arena);
}

// ---- tests ----
static void own_kernels_are_near_the_cpu(void **state)
{
    (void)state;
    vx_device *dev = make_cuda(VX_ATTENTION_OWN);
    for (int i = 0; i < CASES; i++) run_case(dev, &cases[i]);
    assert_int_equal(vx_cuda_of(dev)->attention_calls[VX_CUDA_ATTENTION_CUDNN], 0);
    vx_device_destroy(&dev);
}

static void the_general_kernel_serves_every_architecture(void **state)
{
    (void)state;
    enum { GENERAL = 80 };
    vx_device *dev = make_cuda(VX_ATTENTION_OWN);
    vx_cuda_of(dev)->sm = GENERAL;
    for (int i = 0; i < CASES; i++) run_case(dev, &cases[i]);
    assert_int_equal(vx_cuda_of(dev)->attention_calls[VX_CUDA_ATTENTION_WGMMA], 0);
    vx_device_destroy(&dev);
}

static void cudnn_is_near_the_cpu_or_says_why_not(void **state)
{
    (void)state;
    vx_device *dev = NULL;
    const vx_status s = vx_device_cuda_create(&dev, &(vx_cuda_params){ .attention = VX_ATTENTION_CUDNN });
    if (s.code == VX_ERR_UNSUPPORTED) {
        assert_null(dev);
        assert_non_null(strstr(s.message, "libcudnn.so.9"));
        print_message("%s: skipped\n", s.message);
        skip();
    }
    assert_ok(s);
    vx_cuda_of(dev)->short_products = 0;
    for (int i = 0; i < CASES; i++) run_case(dev, &cases[i]);
    // What is causal, wide, f32 or does not line up is the own kernels' also here.
    for (int i = 0; i < VX_CUDA_ATTENTION_WAYS; i++)
        assert_true(vx_cuda_of(dev)->attention_calls[i] > 0 || i == VX_CUDA_ATTENTION_WGMMA || i == VX_CUDA_ATTENTION_SHORT);
    vx_device_destroy(&dev);
}

// The kernel for small attention follows the definition to the bit, over several of its blocks of keys, too.
static void small_attention_has_the_cpus_bits(void **state)
{
    (void)state;
    vx_device *dev = make_cuda(VX_ATTENTION_OWN);
    vx_cuda_of(dev)->short_products = INT64_MAX; // as far as the kernel itself goes
    int compared = 0;
    for (int i = 0; i < CASES; i++) {
        const case_ *c = &cases[i];
        if (c->t == VX_F32) continue;
        vx_arena *arena = NULL;
        assert_ok(vx_arena_create(dev, &arena, 64 << 20));
        operand o[OPERANDS];
        for (int k = 0; k < OPERANDS; k++) o[k] = make_operand(dev, arena, c, k);
        void *found = vx_alloc(bytes_of(&o[OUT]));
        assert_non_null(found);
        run_on(dev, c, o, found);
        assert_ok(vx_attention(cpu, o[OUT].near, o[Q].near, o[K].near, o[V].near,
                               &(vx_attention_params){ .scale = c->scale, .causal = c->causal }));
        if (memcmp(found, o[OUT].host, bytes_of(&o[OUT])) != 0) fail_msg("%s: other bits than the processor's", says(c));
        compared++;
        for (int k = 0; k < OPERANDS; k++) vx_free(o[k].host);
        vx_free(found);
        vx_arena_destroy(&arena);
    }
    assert_true(compared > 20);
    assert_int_equal(vx_cuda_of(dev)->attention_calls[VX_CUDA_ATTENTION_MMA], 0);
    vx_device_destroy(&dev);
}

// A bench's and a request's device may differ in the number of heads, but not in a head's bits.
static void a_heads_bits_do_not_depend_on_the_others(void **state)
{
    (void)state;
    const case_ c = { 300, 300, 6, 6, 128, VX_BF16, false, GAPS, 0, 3 };
    vx_device *dev = make_cuda(VX_ATTENTION_OWN);
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(dev, &arena, 64 << 20));
    operand o[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) o[i] = make_operand(dev, arena, &c, i);
    void *all = vx_alloc(bytes_of(&o[OUT])), *one = vx_alloc(bytes_of(&o[OUT]));
    assert_true(all && one);
    run_on(dev, &c, o, all);
    operand part[OPERANDS];
    memcpy(part, o, sizeof part);
    for (int i = 0; i < OPERANDS; i++) part[i].far = vx_tensor_slice(o[i].far, 1, 4, 5);
    run_on(dev, &c, part, one);
    for (int64_t r = 0; r < c.sq; r++) {
        const size_t at = (size_t)place(o[OUT].near, r, 4, 0) * element(c.t);
        assert_memory_equal((char *)all + at, (char *)one + at, (size_t)c.d * element(c.t));
    }
    for (int i = 0; i < OPERANDS; i++) vx_free(o[i].host);
    vx_free(all);
    vx_free(one);
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
}

// Items of one call are what they are alone, whichever program computes them. Shared: all read the same keys and values.
static const struct {
    case_ of;
    int64_t items;
    bool shared;
} item_cases[] = {
    { { 133, 133, 4, 4, 64, VX_F16, false, PARTS, 0, 3 }, 7, false },
    { { 133, 300, 4, 2, 64, VX_F16, false, GAPS, 0, 3 }, 3, true },
    { { 301, 301, 3, 3, 128, VX_BF16, false, PARTS, 0, 5 }, 5, false },
    { { 200, 200, 4, 2, 72, VX_BF16, true, GAPS, 0, 3 }, 4, false },
    { { 130, 300, 4, 2, 72, VX_F16, false, GAPS, 0, 3 }, 3, true },
    { { 150, 150, 2, 2, 40, VX_BF16, false, ODD, 0, 3 }, 3, false },
    { { 40, 70, 2, 1, 200, VX_BF16, false, GAPS, 0, 3 }, 2, false },
    { { 90, 130, 2, 1, 64, VX_F32, false, GAPS, 0, 3 }, 3, false },
    { { 90, 90, 2, 1, 128, VX_F32, true, ODD, 0, 3 }, 1, false },
};
enum { ITEM_CASES = sizeof item_cases / sizeof item_cases[0] };

static vx_tensor items_of(vx_tensor t, int64_t rows, bool shared)
{
    vx_tensor items = vx_tensor_split(t, 0, rows);
    if (shared) items.stride[0] = 0;
    return items;
}

static void check_items(vx_device *dev, int n)
{
    const case_ *c = &item_cases[n].of;
    case_ all = *c; // below each other
    all.sq *= item_cases[n].items;
    all.skv *= item_cases[n].items;
    const vx_attention_params params = { .scale = c->scale, .causal = c->causal };
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(dev, &arena, 64 << 20));
    operand o[OPERANDS];
    vx_tensor t[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        o[i] = make_operand(dev, arena, &all, i);
        t[i] = items_of(o[i].far, i == Q || i == OUT ? c->sq : c->skv, item_cases[n].shared && (i == K || i == V));
    }
    void *together = vx_alloc(bytes_of(&o[OUT])), *apart = vx_alloc(bytes_of(&o[OUT]));
    assert_true(together && apart);
    assert_ok(vx_attention(dev, t[OUT], t[Q], t[K], t[V], &params));
    const vx_cuda_attention_way way = vx_cuda_of(dev)->attention_ran;
    assert_ok(vx_download(dev, together, o[OUT].memory));
    assert_ok(vx_upload(dev, o[OUT].memory, o[OUT].host));
    for (int64_t i = 0; i < item_cases[n].items; i++) {
        assert_ok(vx_attention(dev, vx_tensor_row(t[OUT], i), vx_tensor_row(t[Q], i), vx_tensor_row(t[K], i),
                               vx_tensor_row(t[V], i), &params));
        if (vx_cuda_of(dev)->attention_ran != way) fail_msg("%s: by itself another program ran", says(c));
    }
    assert_ok(vx_download(dev, apart, o[OUT].memory));
    if (memcmp(together, apart, bytes_of(&o[OUT])) != 0) fail_msg("%s: items have other bits than alone", says(c));
    if (memcmp(together, o[OUT].host, bytes_of(&o[OUT])) == 0) fail_msg("%s: nothing was written", says(c));
    for (int i = 0; i < OPERANDS; i++) vx_free(o[i].host);
    vx_free(together);
    vx_free(apart);
    vx_arena_destroy(&arena);
}

static void items_have_the_bits_of_their_own_calls(void **state)
{
    (void)state;
    enum { GENERAL = 80 };
    for (int kind = 0; kind < 4; kind++) { // as on this card, as on any, small, by cuDNN
        vx_device *dev = NULL;
        if (kind == 3 && vx_device_cuda_create(&dev, &(vx_cuda_params){ .attention = VX_ATTENTION_CUDNN }).code != VX_OK)
            continue;
        if (!dev) dev = make_cuda(VX_ATTENTION_OWN);
        vx_cuda_of(dev)->short_products = kind == 2 ? INT64_MAX : 0;
        if (kind == 1) vx_cuda_of(dev)->sm = GENERAL;
        for (int n = 0; n < ITEM_CASES; n++) check_items(dev, n);
        vx_device_destroy(&dev);
    }
}

static void items_are_one_launch(void **state)
{
    (void)state;
    vx_device *dev = make_cuda(VX_ATTENTION_OWN);
    check_items(dev, 0);
    int64_t calls = 0;
    for (int i = 0; i < VX_CUDA_ATTENTION_WAYS; i++) calls += vx_cuda_of(dev)->attention_calls[i];
    assert_int_equal(calls, 1 + item_cases[0].items);
    vx_device_destroy(&dev);
}

int main(void)
{
    vx_device *dev = NULL;
    vx_status s = vx_device_cuda_create(&dev, &(vx_cuda_params){ .attention = VX_ATTENTION_OWN });
    if (s.code == VX_ERR_DEVICE_NONE) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    vx_device_destroy(&dev);
    if (s.code == VX_OK) s = vx_device_cpu_create(&cpu, NULL);
    if (s.code != VX_OK) {
        printf("%s\n", s.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_have_the_bits_of_their_own_calls),
        cmocka_unit_test(items_are_one_launch),
        cmocka_unit_test(own_kernels_are_near_the_cpu),
        cmocka_unit_test(the_general_kernel_serves_every_architecture),
        cmocka_unit_test(small_attention_has_the_cpus_bits),
        cmocka_unit_test(cudnn_is_near_the_cpu_or_says_why_not),
        cmocka_unit_test(a_heads_bits_do_not_depend_on_the_others),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vx_device_destroy(&cpu);
    return failed;
}
