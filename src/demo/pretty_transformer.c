// The residual stream of the pretty transformer, by channel:
//
//   X  0..95      the row as it came in: 24 channels of 2 x 2 latents; of audio rows 0..3 and 52..79
//   F  96..111    four fields, each a value and its slopes along x, y and time
//   C  112..123   three colours, the same way
//   P  124..135   text rows: what the tokens say
//   V  136..143   the prompt, as every row sees it
//   U  144        1 in latents that stand for a single frame
//   K  145        a constant so large that a row's root mean square is one number: the norms only scale
//   M  146..148   free; the modulation's shifts put 1 there for video, text and audio rows
//   Q  150        free; a shift puts the head's curve there: 1 for noise, above 100 for rows of a picture that was given
//   W  151        how near such a picture is, 0 to 1
//   O  149        how fine the canvas is: rows of a frame over those and 64, the rows of a frame of 256 x 256
//
// The last channels of X, from 52 on, carry the fields: noise at first, at the end a copy of the field each, so that on the
// straight way between, the average of what is there always tells the same field.
// Block 0 averages X over the neighbourhood: queries and keys are constants, so a score depends on the distance alone, which
// the rotary turns into a sum of cosines; large in the middle, it falls like a Gaussian's logarithm. Four heads look a little
// to one side each, at the corners of a tetrahedron: their mean is the field, their differences are its slopes. The fifth
// weighs video rows against audio rows, whose number is known, and so finds O; the MLP fits fields and slopes to the canvas
// with it, because positions are the same for every size.
// Block 1 looks at the text (three heads pick tokens by content), for a given picture's rows at the same place and not far in
// time, whose colours it takes up (the fourth), and for a neighbour in time at the distance of one frame (the fifth); its MLP
// multiplies fields by what the prompt says into colours, less where a picture is near. The head's modulation divides by sigma.
#include <math.h>

#include "demo/pretty.h"
#include "tensor/mathf.h"

enum {
    X = 0,
    F = 96,
    C = 112,
    P = 124,
    V = 136,
    U = 144,
    K = 145,
    M = 146,
    O = 149,
    Q = 150,
    W = 151,
    FIELDS = 4,
    CARRIERS = 52, // of X: latent channels 13..23
    EACH = 11,     // carriers of a field
    EACH_AUDIO = 7,
    TOKEN = 12,    // channels of P
    LOOKED_AT = 4, // of which attention looks at so many
    PROMPT = 8,    // channels of V
    HEADS = 5,
    CORNERS = 4,
    HEAD_DIM = 96,
    TEXT_HEADS = 3,
    PICTURE_HEAD = 3,
    FRAME_HEAD = 4,
    VIDEO = 0, // modalities, in the order of the modulation table
    TEXT = 1,
    AUDIO = 2,
    MODALITIES = 3,
};
enum { SHIFT_MSA, SCALE_MSA, GATE_MSA, SHIFT_MLP, SCALE_MLP, GATE_MLP, CHUNKS };

static const float constant = 202.0f; // of K; times sqrt(160)/16 it is 1 to 0.2 %
static const float norm_weight = 16.0f;
// A text row has no K: its norm scales the twelve channels of P, of deviation 1, by sqrt(160/12) * 16.
static const float text_scale = 58.42f;
// How much an average over the neighbourhood is smaller than what it averages, at 256 x 256 and 5 seconds.
static const float video_gain = 16.0f, audio_gain = 11.5f;

// ---- attention by distance -------------------------------------------------------------------------------------------------
// A score is a sum over channel pairs; pair j of axis a turns with 10^(-j/4) per unit. The slowest pairs hardly turn: they
// serve as marks that only rows of one modality carry, and as filling that keeps every vector's length the same, because
// queries and keys are normalised.
enum { TIME = 0, HEIGHT = 16, WIDTH = 32, HALF = 48 };
static const int mark[MODALITIES] = { HEIGHT + 15, WIDTH + 15, TIME + 15 };
enum { FILL_QUERY = HEIGHT + 14, FILL_KEY = WIDTH + 14 };

typedef struct peak {
    int pair;     // TIME + j, HEIGHT + j, WIDTH + j
    float height; // of its cosine in the score
    float at;     // distance of the maximum, in radians of this pair
} peak;

typedef struct vectors {
    float query[HEAD_DIM], key[HEAD_DIM], budget; // budget: the sum of heights that both are filled up to
} vectors;

static void add_peak(vectors *v, const peak *p)
{
    float root = sqrtf(p->height);
    v->query[p->pair] += root * vx_cosf(p->at);
    v->query[p->pair + HALF] += root * vx_sinf(p->at);
    v->key[p->pair] += root;
}

static float filling(const float *vector, float budget)
{
    float sum = 0.0f;
    for (int i = 0; i < HEAD_DIM; i++) sum += vector[i] * vector[i];
    return sqrtf(budget > sum ? budget - sum : 0.0f);
}

// Rows of the fused projection: which = 0 query, 1 key, 2 value.
static float *projection(vx_demo_tensor *qkv, int head, int which, int i, int channel)
{
    return vx_demo_at(qkv, (head * 3 + which) * HEAD_DIM + i, channel);
}

static void put_vector(vx_demo_tensor *qkv, int head, int which, int modality, const float *vector)
{
    for (int i = 0; i < HEAD_DIM; i++) *projection(qkv, head, which, i, M + modality) = vector[i];
}

// Both norms' weights for a budget: |q| |k| / sqrt(96) is the budget when the vectors agree.
static void put_norms(vx_demo_tensors *set, const char *block, float budget)
{
    float weight = sqrtf(budget / sqrtf((float)HEAD_DIM));
    vx_demo_fill(vx_demo_get(set, "%s.attn.q_norm.weight", block), weight);
    vx_demo_fill(vx_demo_get(set, "%s.attn.k_norm.weight", block), weight);
    vx_demo_fill(vx_demo_get(set, "%s.norm1.weight", block), norm_weight);
    vx_demo_fill(vx_demo_get(set, "%s.norm2.weight", block), norm_weight);
}

static float *modulation(vx_demo_tensors *set, int block, const char *what, int modality, int chunk, int channel, int64_t hidden,
                         int column)
{
    vx_demo_tensor *t = vx_demo_get(set, "blocks.%d.adaln_proj.linear.%s", block, what);
    return vx_demo_at(t, ((int64_t)modality * CHUNKS + chunk) * hidden + channel, column);
}

static void put_marks(vx_demo_tensors *set, int block, int64_t hidden)
{
    for (int m = 0; m < MODALITIES; m++) {
        *modulation(set, block, "bias", m, SHIFT_MSA, M + m, hidden, 0) = 1.0f;
        *modulation(set, block, "bias", m, SHIFT_MLP, M + m, hidden, 0) = 1.0f;
    }
}

// ---- block 0: fields ---------------------------------------------------------------------------------------------------------
static const float corner[CORNERS][3] = { { 1, 1, 1 }, { 1, -1, -1 }, { -1, 1, -1 }, { -1, -1, 1 } }; // x, y, time
static const float aside_space = 0.5f, aside_time = 1.5f;                                             // units

// cos(f d) of height b falls like a Gaussian of deviation 1 / (f sqrt(b)).
static float height_for(float deviation, float frequency)
{
    float x = deviation * frequency;
    return 1.0f / (x * x);
}

static const float block0_budget = 32.0f;

// Carrier i belongs to field i % 4.
static float carrier_share(void)
{
    return 1.0f / sqrtf((float)EACH);
}

static void average_neighbours(vx_demo_tensors *set, int64_t hidden)
{
    const float slow = 0.017782794f, medium = 0.1f; // pairs 7 and 4
    const float budget = block0_budget, apart = 12.0f;
    const float time = height_for(VX_DEMO_LENGTH_TIME * 0.8f, slow), space = height_for(VX_DEMO_LENGTH_SPACE * 0.82f, medium);
    vx_demo_tensor *qkv = vx_demo_get(set, "blocks.0.attn.qkv_proj.weight"),
                   *out = vx_demo_get(set, "blocks.0.attn.out_proj.weight");
    put_norms(set, "blocks.0", block0_budget);
    put_marks(set, 0, hidden);
    for (int h = 0; h < CORNERS; h++) {
        for (int m = 0; m < MODALITIES; m++) {
            vectors v = { .budget = budget };
            add_peak(&v, &(peak){ WIDTH + 4, space, medium * aside_space * corner[h][0] });
            add_peak(&v, &(peak){ HEIGHT + 4, space, medium * aside_space * corner[h][1] });
            add_peak(&v, &(peak){ TIME + 7, time, slow * aside_time * corner[h][2] });
            add_peak(&v, &(peak){ mark[m], apart, 0.0f });
            v.query[FILL_QUERY] = filling(v.query, budget);
            v.key[FILL_KEY] = filling(v.key, budget);
            put_vector(qkv, h, 0, m, v.query);
            put_vector(qkv, h, 1, m, v.key);
        }
        for (int i = 0; i < HEAD_DIM; i++) *projection(qkv, h, 2, i, X + i) = 1.0f;
    }
    for (int i = 0; i < FIELDS * EACH; i++)
        for (int h = 0; h < CORNERS; h++)
            for (int part = 0; part < VX_DEMO_PARTS; part++) {
                float factor = 1.0f;
                if (part == VX_DEMO_SLOPE_T) factor = corner[h][2] * VX_DEMO_LENGTH_TIME / aside_time;
                else if (part) factor = corner[h][part - 1] * VX_DEMO_LENGTH_SPACE / aside_space;
                *vx_demo_at(out, F + i % FIELDS * VX_DEMO_PARTS + part, h * HEAD_DIM + CARRIERS + i) =
                    carrier_share() / (float)CORNERS * factor;
            }
    for (int i = 0; i < FIELDS * VX_DEMO_PARTS; i++) {
        *modulation(set, 0, "weight", VIDEO, GATE_MSA, F + i, hidden, VX_DEMO_CURVE_VIDEO) = 1.0f;
        *modulation(set, 0, "weight", AUDIO, GATE_MSA, F + i, hidden, VX_DEMO_CURVE_AUDIO) = 1.0f;
    }
}

// All video rows against all audio rows: T * rows of a frame to 2 * A, and T to A is the same for every length. The mark of
// audio is higher by as much as makes a frame of 64 rows even with them.
static void weigh_rows(vx_demo_tensors *set, int64_t hidden)
{
    const float apart = 12.0f, even = 1.744f; // ln(64 * 37 / 414): 124 frames
    vx_demo_tensor *qkv = vx_demo_get(set, "blocks.0.attn.qkv_proj.weight"),
                   *out = vx_demo_get(set, "blocks.0.attn.out_proj.weight");
    const int head = CORNERS;
    vectors query = { .budget = block0_budget };
    for (int m = VIDEO; m <= AUDIO; m += AUDIO) {
        vectors v = { .budget = block0_budget };
        add_peak(&v, &(peak){ mark[m], m == AUDIO ? apart + even : apart, 0.0f });
        query.query[mark[m]] = v.query[mark[m]];
        v.key[FILL_KEY] = filling(v.key, block0_budget);
        put_vector(qkv, head, 1, m, v.key);
    }
    const float text[HEAD_DIM] = { [FILL_KEY] = sqrtf(block0_budget) };
    put_vector(qkv, head, 1, TEXT, text);
    query.query[FILL_QUERY] = filling(query.query, block0_budget);
    put_vector(qkv, head, 0, VIDEO, query.query);
    *projection(qkv, head, 2, 0, M + VIDEO) = 1.0f;
    *vx_demo_at(out, O, head * HEAD_DIM) = 1.0f;
    *modulation(set, 0, "bias", VIDEO, GATE_MSA, O, hidden, 0) = 1.0f;
}

// A row is as wide as q = sqrt((1-o)/o) rows of a 256 x 256 canvas, so slopes along x and y are q times those of the positions.
// On a canvas with fewer rows an average holds less noise and is q times as large; there everything is divided by q, which
// would make more of little on a finer one. Together: below o = 1/2 values and slopes in time take 1/q, above it the others q.
typedef struct bend {
    float at, factor;
} bend;

static const bend coarser[] = {
    { 0.125f, 0.37796447f }, { 0.1875f, 0.48038446f }, { 0.25f, 0.57735027f }, { 0.375f, 0.77459667f }, { 0.5f, 1.0f }
};
static const bend finer[] = {
    { 0.5f, 1.0f }, { 0.625f, 0.77459667f }, { 0.75f, 0.57735027f }, { 0.875f, 0.37796447f }, { 0.96875f, 0.17960530f }
};
enum { BENDS = 5 };

// channel *= a curve of O through the bends, constant before and after them; from the unit on, how many are used is returned.
static int multiply(vx_demo_tensors *set, int unit, int channel, const bend *bends)
{
    const float steep = 256.0f, open = 8.0f; // silu(8) is 8 to 0.03 %
    vx_demo_tensor *in = vx_demo_get(set, "blocks.0.mlp.fc1.weight"), *out = vx_demo_get(set, "blocks.0.mlp.fc2.weight");
    const int64_t ffn = out->shape[1];
    const int before = unit;
    if (bends[0].factor != 1.0f) {
        *vx_demo_at(in, unit, M + VIDEO) = open;
        *vx_demo_at(in, ffn + unit, channel) = 1.0f;
        *vx_demo_at(out, channel, unit++) = (bends[0].factor - 1.0f) / open;
    }
    float slope = 0.0f;
    for (int k = 0; k < BENDS; k++, unit++) {
        float now = k + 1 < BENDS ? (bends[k + 1].factor - bends[k].factor) / (bends[k + 1].at - bends[k].at) : 0.0f;
        *vx_demo_at(in, unit, O) = steep;
        *vx_demo_at(in, unit, M + VIDEO) = -steep * bends[k].at;
        *vx_demo_at(in, ffn + unit, channel) = 1.0f;
        *vx_demo_at(out, channel, unit) = (now - slope) / steep;
        slope = now;
    }
    return unit - before;
}

static void fit_to_canvas(vx_demo_tensors *set, int64_t hidden)
{
    int unit = 0;
    for (int i = 0; i < FIELDS * VX_DEMO_PARTS; i++) {
        const int part = i % VX_DEMO_PARTS;
        const bool across = part == VX_DEMO_SLOPE_X || part == VX_DEMO_SLOPE_Y;
        unit += multiply(set, unit, F + i, across ? finer : coarser);
        *modulation(set, 0, "bias", VIDEO, GATE_MLP, F + i, hidden, 0) = 1.0f;
    }
}

// ---- block 1: prompt and colours -----------------------------------------------------------------------------------------------
// Text heads: q.k is largest for tokens that point a head's way; a softmax of deviation `choosy` picks a few. What it looks at
// is not what it reports, or the report would always point that way.
static const float choosy = 2.0f, loud = 1.5f; // loud: what averaging over a few tokens takes away
enum { TASTE = 8 };
static const int taste[TASTE] = { HEIGHT + 10, HEIGHT + 11, HEIGHT + 12, HEIGHT + 13,
                                  WIDTH + 10,  WIDTH + 11,  WIDTH + 12,  WIDTH + 13 };

static void look_at_text(vx_demo_tensor *qkv, int head, float budget, uint64_t *stream)
{
    const float apart = 12.0f;
    vectors v = { .budget = budget };
    add_peak(&v, &(peak){ mark[TEXT], apart, 0.0f });
    float length = 0.0f, way[TASTE];
    for (int i = 0; i < TASTE; i++) {
        way[i] = vx_demo_normal(stream);
        length += way[i] * way[i];
    }
    for (int i = 0; i < TASTE; i++) v.query[taste[i]] = sqrtf(choosy) * way[i] / sqrtf(length);
    v.query[FILL_QUERY] = filling(v.query, budget);
    put_vector(qkv, head, 0, VIDEO, v.query);
    put_vector(qkv, head, 0, AUDIO, v.query);
    v.key[FILL_KEY] = filling(v.key, budget - (float)TASTE * choosy);
    put_vector(qkv, head, 1, TEXT, v.key);
    float other[HEAD_DIM] = { [FILL_KEY] = sqrtf(budget) };
    put_vector(qkv, head, 1, VIDEO, other);
    put_vector(qkv, head, 1, AUDIO, other);
    for (int i = 0; i < TASTE; i++)
        for (int p = 0; p < LOOKED_AT; p++)
            *projection(qkv, head, 1, taste[i], P + p) =
                sqrtf(choosy) * vx_demo_sign(stream) / sqrtf((float)LOOKED_AT) / text_scale;
    for (int p = LOOKED_AT; p < TOKEN; p++) *projection(qkv, head, 2, p, P + p) = 1.0f / text_scale;
}

// Latents are 20/3 units of time apart, but those that stand for one frame have their next at 5/3. This head looks there; the
// text rows draw what finds nothing.
static void look_for_next_frame(vx_demo_tensor *qkv, int head, float budget)
{
    static const peak peaks[] = {
        { TIME + 0, 10.0f, 1.6666667f }, { TIME + 1, 10.0f, 0.93723554f }, { TIME + 2, 8.0f, 0.52704628f },
        { TIME + 4, 5.0f, 0.16666667f }, { HEIGHT + 2, 4.0f, 0.0f },       { HEIGHT + 4, 4.0f, 0.0f },
        { WIDTH + 2, 4.0f, 0.0f },       { WIDTH + 4, 4.0f, 0.0f },
    };
    const float apart = 12.0f, nothing = 8.5f; // below the full score
    vectors v = { .budget = budget };
    float full = apart;
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        add_peak(&v, &peaks[i]);
        full += peaks[i].height;
    }
    add_peak(&v, &(peak){ mark[VIDEO], apart, 0.0f });
    v.key[FILL_KEY] = filling(v.key, budget);
    put_vector(qkv, head, 1, VIDEO, v.key);
    float text[HEAD_DIM] = { 0 };
    text[mark[TEXT]] = sqrtf(full - nothing);
    text[FILL_KEY] = filling(text, budget);
    put_vector(qkv, head, 1, TEXT, text);
    v.query[mark[TEXT]] = sqrtf(full - nothing);
    v.query[FILL_QUERY] = filling(v.query, budget);
    put_vector(qkv, head, 0, VIDEO, v.query);
    float other[HEAD_DIM] = { [FILL_KEY] = sqrtf(budget) };
    put_vector(qkv, head, 1, AUDIO, other);
    *projection(qkv, head, 2, 0, M + VIDEO) = 1.0f;
}

// Keys of given pictures come from Q, which is so large there that what all video rows add points them nowhere else. Rows of
// the text draw what is far from every picture.
static void look_at_pictures(vx_demo_tensors *set, float budget, int64_t hidden)
{
    static const peak peaks[] = {
        { TIME + 7, 5.06f, 0.0f },   // deviation 25 units, 0.6 s
        { HEIGHT + 4, 20.0f, 0.0f }, // 2.2 units
        { WIDTH + 4, 20.0f, 0.0f },
    };
    const float apart = 12.0f, nothing = 7.0f, aside = 24.0f;
    vx_demo_tensor *qkv = vx_demo_get(set, "blocks.1.attn.qkv_proj.weight"),
                   *out = vx_demo_get(set, "blocks.1.attn.out_proj.weight");
    vectors v = { .budget = budget };
    float full = apart;
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        add_peak(&v, &peaks[i]);
        full += peaks[i].height;
    }
    add_peak(&v, &(peak){ mark[VIDEO], apart, 0.0f });
    v.key[FILL_KEY] = filling(v.key, budget);
    for (int i = 0; i < HEAD_DIM; i++) *projection(qkv, PICTURE_HEAD, 1, i, Q) = v.key[i];
    const float other[HEAD_DIM] = { [TIME + 14] = aside * sqrtf(budget) }; // a pair that nothing else uses
    put_vector(qkv, PICTURE_HEAD, 1, VIDEO, other);
    put_vector(qkv, PICTURE_HEAD, 1, AUDIO, other);
    float text[HEAD_DIM] = { [FILL_KEY] = 0.0f };
    text[mark[TEXT]] = v.query[mark[TEXT]] = sqrtf(full - nothing);
    text[FILL_KEY] = filling(text, budget);
    put_vector(qkv, PICTURE_HEAD, 1, TEXT, text);
    v.query[FILL_QUERY] = filling(v.query, budget);
    put_vector(qkv, PICTURE_HEAD, 0, VIDEO, v.query);
    for (int i = 0; i < VX_DEMO_LATENT_SINGLE; i++) {
        for (int k = 0; k < 4; k++) *projection(qkv, PICTURE_HEAD, 2, i, X + 4 * i + k) = 0.25f;
        *vx_demo_at(out, C + i, PICTURE_HEAD * HEAD_DIM + i) = 1.0f;
    }
    *projection(qkv, PICTURE_HEAD, 2, VX_DEMO_LATENT_SINGLE, M + VIDEO) = 1.0f;
    *vx_demo_at(out, W, PICTURE_HEAD * HEAD_DIM + VX_DEMO_LATENT_SINGLE) = 1.0f;
    *modulation(set, 1, "weight", VIDEO, SHIFT_MSA, Q, hidden, VX_DEMO_CURVE_HEAD) = 1.0f;
    *modulation(set, 1, "bias", VIDEO, GATE_MSA, W, hidden, 0) = 1.0f;
    for (int i = 0; i < VX_DEMO_LATENT_SINGLE; i++) *modulation(set, 1, "bias", VIDEO, GATE_MSA, C + i, hidden, 0) = 1.0f;
}

static void read_prompt(vx_demo_tensors *set, int64_t hidden, uint64_t seed)
{
    const float budget = 128.0f;
    vx_demo_tensor *qkv = vx_demo_get(set, "blocks.1.attn.qkv_proj.weight"),
                   *out = vx_demo_get(set, "blocks.1.attn.out_proj.weight");
    uint64_t stream = vx_demo_stream(seed, "prompt");
    put_norms(set, "blocks.1", budget);
    put_marks(set, 1, hidden);
    for (int h = 0; h < TEXT_HEADS; h++) look_at_text(qkv, h, budget, &stream);
    look_at_pictures(set, budget, hidden);
    look_for_next_frame(qkv, FRAME_HEAD, budget);
    for (int k = 0; k < PROMPT; k++)
        for (int h = 0; h < TEXT_HEADS; h++)
            for (int p = LOOKED_AT; p < TOKEN; p++)
                *vx_demo_at(out, V + k, h * HEAD_DIM + p) =
                    loud * vx_demo_sign(&stream) / sqrtf((float)(TEXT_HEADS * (TOKEN - LOOKED_AT)));
    *vx_demo_at(out, U, FRAME_HEAD * HEAD_DIM) = 1.0f;
    for (int i = V; i <= U; i++)
        for (int m = VIDEO; m <= AUDIO; m += AUDIO) *modulation(set, 1, "bias", m, GATE_MSA, i, hidden, 0) = 1.0f;
}

// Each field has a hue of its own; the prompt decides how much of it there is, and adds a tint.
static void mix_colours(vx_demo_tensors *set, int64_t hidden, int64_t ffn)
{
    static const float hue[FIELDS][VX_DEMO_COLOURS] = {
        { 0.8f, 0.1f, -0.6f }, { -0.6f, 0.6f, 0.1f }, { 0.1f, -0.5f, 0.8f }, { 0.4f, 0.5f, 0.4f }
    };
    const float usual = 1.4f, hushed = 8.0f, swing = 1.0f, tint = 0.6f, open = 8.0f; // silu(8) is 8 to 0.03 %
    vx_demo_tensor *in = vx_demo_get(set, "blocks.1.mlp.fc1.weight"), *out = vx_demo_get(set, "blocks.1.mlp.fc2.weight");
    int unit = 0; // rows of fc1: gates, then values
    for (int f = 0; f < FIELDS; f++)
        for (int part = 0; part < VX_DEMO_PARTS; part++, unit++) {
            *vx_demo_at(in, unit, M + VIDEO) = usual;
            *vx_demo_at(in, unit, W) = -hushed;
            *vx_demo_at(in, unit, V + f) = swing;
            *vx_demo_at(in, ffn + unit, F + f * VX_DEMO_PARTS + part) = 1.0f;
            for (int c = 0; c < VX_DEMO_COLOURS; c++) *vx_demo_at(out, C + c * VX_DEMO_PARTS + part, unit) = hue[f][c];
        }
    for (int c = 0; c < VX_DEMO_COLOURS; c++, unit++) {
        *vx_demo_at(in, unit, M + VIDEO) = open;
        *vx_demo_at(in, unit, W) = -open;
        *vx_demo_at(in, ffn + unit, V + FIELDS + c) = 1.0f;
        *vx_demo_at(out, C + c * VX_DEMO_PARTS, unit) = tint / open;
    }
    for (int i = 0; i < VX_DEMO_COLOURS * VX_DEMO_PARTS; i++)
        *modulation(set, 1, "bias", VIDEO, GATE_MLP, C + i, hidden, 0) = 1.0f;
}

// ---- ends ------------------------------------------------------------------------------------------------------------------------
static int audio_place(int channel)
{
    return X + (channel < VX_DEMO_NOTES ? channel : CARRIERS + channel - VX_DEMO_NOTES);
}

static void take_rows_in(vx_demo_tensors *set)
{
    vx_demo_tensor *video = vx_demo_get(set, "video_patch_proj.weight"), *audio = vx_demo_get(set, "audio_patch_proj.weight");
    for (int i = 0; i < 4 * VX_DEMO_VIDEO_CHANNELS; i++) *vx_demo_at(video, X + i, i) = 1.0f;
    for (int i = 0; i < VX_DEMO_AUDIO_CHANNELS; i++) *vx_demo_at(audio, audio_place(i), i) = 1.0f;
    vx_demo_get(set, "video_patch_proj.bias")->value[K] = constant;
    vx_demo_get(set, "audio_patch_proj.bias")->value[K] = constant;
}

// Text rows: P alone, brought to deviation 1 by the refiner's last norm; the refiner's blocks let the words colour each other.
static void take_text_in(vx_demo_tensors *set, const vx_demo_sizes *z, uint64_t seed)
{
    uint64_t stream = vx_demo_stream(seed, "words");
    vx_demo_tensor *in = vx_demo_get(set, "condition_proj.weight");
    for (int p = 0; p < TOKEN; p++)
        for (int64_t i = 0; i < z->text.hidden; i++) *vx_demo_at(in, P + p, i) = vx_demo_normal(&stream);
    for (int64_t b = 0; b < z->denoiser.refiner_layers; b++) {
        char block[32];
        snprintf(block, sizeof block, "token_refiner.blocks.%d", (int)b);
        put_norms(set, block, sqrtf((float)HEAD_DIM));
        vx_demo_fill(vx_demo_get(set, "%s.norm1.weight", block), 1.0f);
        vx_demo_fill(vx_demo_get(set, "%s.norm2.weight", block), 1.0f);
        vx_demo_tensor *qkv = vx_demo_get(set, "%s.attn.qkv_proj.weight", block),
                       *out = vx_demo_get(set, "%s.attn.out_proj.weight", block);
        for (int64_t row = 0; row < qkv->shape[0]; row++)
            for (int p = 0; p < TOKEN; p++) *vx_demo_at(qkv, row, P + p) = 0.25f * vx_demo_normal(&stream);
        for (int p = 0; p < TOKEN; p++)
            for (int64_t i = 0; i < out->shape[1]; i++) *vx_demo_at(out, P + p, i) = vx_demo_normal(&stream) / 64.0f;
    }
    vx_demo_fill(vx_demo_get(set, "token_refiner.final_norm.weight"), 0.27386128f); // sqrt(12/160)
}

// v = (x0 - x) / sigma, x0 in latents' channels: the colour at each of the row's four latents, its slopes, U.
static void give_video_out(vx_demo_tensors *set)
{
    vx_demo_tensor *out = vx_demo_get(set, "final_layer.video_out.weight");
    const float half = 0.5f * VX_DEMO_LATENT_UNITS / VX_DEMO_LENGTH_SPACE;
    for (int k = 0; k < 4 * VX_DEMO_VIDEO_CHANNELS; k++) {
        const int channel = k / 4, dy = k / 2 % 2, dx = k % 2, part = channel % VX_DEMO_PARTS;
        *vx_demo_at(out, k, X + k) = -1.0f;
        if (channel == VX_DEMO_LATENT_SINGLE) *vx_demo_at(out, k, U) = 1.0f;
        if (k >= CARRIERS) *vx_demo_at(out, k, F + k % FIELDS * VX_DEMO_PARTS) = carrier_share();
        if (channel >= VX_DEMO_LATENT_SINGLE) continue;
        *vx_demo_at(out, k, C + channel) = 1.0f;
        if (part != VX_DEMO_VALUE) continue;
        *vx_demo_at(out, k, C + channel + VX_DEMO_SLOPE_X) = dx ? half : -half;
        *vx_demo_at(out, k, C + channel + VX_DEMO_SLOPE_Y) = dy ? half : -half;
    }
}

static void give_audio_out(vx_demo_tensors *set)
{
    vx_demo_tensor *out = vx_demo_get(set, "final_layer.audio_out.weight");
    const float field = 0.8f, prompt = 0.6f;
    for (int k = 0; k < VX_DEMO_AUDIO_CHANNELS; k++) {
        *vx_demo_at(out, k, audio_place(k)) = -1.0f;
        if (k >= VX_DEMO_NOTES) {
            *vx_demo_at(out, k, F + k % FIELDS * VX_DEMO_PARTS) = carrier_share() * (float)EACH / (float)EACH_AUDIO;
            continue;
        }
        *vx_demo_at(out, k, F + k * VX_DEMO_PARTS) = field;
        *vx_demo_at(out, k, V + k) = prompt;
    }
}

vx_status vx_demo_pretty_transformer(vx_demo_tensors *set, const vx_demo_sizes *z, uint64_t seed)
{
    const int64_t hidden = z->denoiser.hidden;
    VX_TRY(vx_demo_pretty_time(set, z, video_gain, audio_gain));
    take_rows_in(set);
    take_text_in(set, z, seed);
    average_neighbours(set, hidden);
    weigh_rows(set, hidden);
    fit_to_canvas(set, hidden);
    read_prompt(set, hidden, seed);
    mix_colours(set, hidden, z->denoiser.ffn);
    vx_demo_fill(vx_demo_get(set, "final_layer.norm.weight"), norm_weight);
    vx_demo_tensor *weight = vx_demo_get(set, "final_layer.adaln_proj.linear.weight"),
                   *bias = vx_demo_get(set, "final_layer.adaln_proj.linear.bias");
    for (int64_t i = 0; i < hidden; i++) { // 1 + scale is the curve; the first half are shifts
        *vx_demo_at(weight, hidden + i, VX_DEMO_CURVE_HEAD) = 1.0f;
        bias->value[hidden + i] = -1.0f;
    }
    give_video_out(set);
    give_audio_out(set);
    return vx_ok();
}
