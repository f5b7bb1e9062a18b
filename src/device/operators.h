// The operators: one function each, defined by the CPU back end.
//
// Common contract. Tensors are views; the last axis has stride 1 unless an operator says "any strides". "act" is bf16, f32 or
// (the video decoder's half precision) f16, the same for all tensors so marked in one call; rn() is rounding to act (nothing
// for f32). Between two roundings
// everything is binary32, one rounding per operation, no contraction, fma only where written. tree32 is the canonical
// reduction: 32 partial sums t[l]; for o = 16, 8, 4, 2, 1: t[l] += t[l xor o], all l at once.
// Outputs must not overlap inputs unless "in place" is said. Everything is borrowed until the next vx_device_sync.
// Errors: VX_ERR_SHAPE, VX_ERR_DTYPE before any work, outputs untouched; VX_ERR_CANCELLED; VX_ERR_MEMORY (scratch).
// Zero rows are legal and do nothing.
#ifndef VX_DEVICE_OPERATORS_H
#define VX_DEVICE_OPERATORS_H

#include "device/device.h"
#include "tensor/quant.h"

// ---- linear ----
// A linear's weight: row segments, each from its own place in a file, that together write `n` output columns.
enum { VX_MAX_SEGMENTS = 4 };
typedef struct vx_weight_segment {
    vx_tensor weight; // [rows, k] f32|bf16|f16, unit last stride; quantised: [rows, stored width], see quant.h
    vx_tensor bias;   // [rows] f32|bf16|f16, or rank 0
    int64_t column;   // output column of row 0
    vx_quant quant;   // kind VX_QUANT_NONE: a plain matrix
} vx_weight_segment;
// A low-rank addition to some output columns: y[:, column..] += scale * (x a^T) b^T.
typedef struct vx_branch {
    vx_tensor a, b; // [r, k], [rows, r] f32|bf16|f16, contiguous
    int64_t column; // output column of b's row 0
    float scale;    // strength * alpha / rank
} vx_branch;
typedef struct vx_weight {
    int64_t n, k;
    int segments;
    vx_weight_segment segment[VX_MAX_SEGMENTS];
    const vx_branch *branch; // adapters, in the order they were given; borrowed
    int branches;
    bool once; // used once in a request: a device with memory of its own keeps no copy
} vx_weight;

// out[m, j] = rn(sum_k x[m,k] w[j,k] + b[j]), rn to out's dtype, once.
//   out [m, n] bf16|f32     x [m, k] bf16|f32     an f32 or f16 weight beside bf16 x is rounded to bf16 first
//   x f16: out f16|f32; weights and biases of any format are rounded to f16 first
// A quantised segment is decoded to bf16 beside bf16 x and to f32 beside f32 and f16 x (quant.h says to what values): the bits
// are those of the decoded matrix. pre_scale multiplies x before, rounded to x's dtype (f32 or bf16); branches see x itself.
// Branches are added to the finished product, one after the other, with the roundings of PEFT: t = rn(x a^T), u = rn(t b^T),
// out = rn(out + rn(scale * u)), rn to x's dtype, the last to out's. Factors of which one is not bf16, beside bf16 x: t, u and
// scale * u stay in f32.
// Sum: f32. The order over k is stated once, whatever m, n, segments and threads: for bf16 x and bf16 w pairs of k in
// increasing order, in a pair the odd element before the even one, each an fma; else k in increasing order, each an fma.
// A bf16 weight beside f32 x is widened. The bias is widened and added in f32 after the sum.
vx_status vx_linear(vx_device *dev, vx_tensor out, vx_tensor x, const vx_weight *w);

// ---- norms ----
typedef enum vx_norm_rounding {
    VX_NORM_ROUND_ONCE,  // rn(f32(x*inv) * w): the denoiser and the video VAE
    VX_NORM_ROUND_TWICE, // rn(w * rn(x*inv)): the text encoder
} vx_norm_rounding;
// Row sums of squares: 32 accumulators; vectors of 8 consecutive elements go to accumulator (vector mod 32), each element
// by fma in order; tree32; inv = 1/sqrtf(s/n + eps). A tail that is not a whole vector counts as a short vector.
//   out, x [rows, n] act     w [n] f32|bf16|f16 or rank 0 (ones)     out may be x
//   or x f32 and out f16: the end is rounded to f16 (VX_NORM_ROUND_ONCE)
vx_status vx_rms_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, float eps, vx_norm_rounding rounding);
// vx_rms_norm (once), then rn(rn(n * rn(1 + scale[row])) + shift[row]): the composition, bit for bit.
//   shift, scale [table, n] act (any row stride)     row [rows] i32, each in 0..table-1: the one condition not checked
vx_status vx_rms_norm_modulate(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, vx_tensor shift, vx_tensor scale,
                               vx_tensor row, float eps);
// (x - mean) / sqrt(var + eps) * w + b, biased variance, two passes, sums as vx_rms_norm's (mean by addition);
// the quotient is a division by the root.
//   out, x [rows, n] act, or x f32 and out f16     w, b [n] f32|bf16|f16 or rank 0     one rounding at the end
vx_status vx_layer_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, vx_tensor b, float eps);

// ---- element-wise ----
// x = rn(x + y), in place.   x, y [rows, n] act
vx_status vx_add(vx_device *dev, vx_tensor x, vx_tensor y);
// x = rn(x + rn(gate[row] * y)), in place.   gate [table, n] act (any row stride)   row [rows] i32, or rank 0: row 0 for all
// With f32 x, gate may be f32|bf16|f16 (a learned scale vector of a file) and y f32|f16, widened.
vx_status vx_gate_add(vx_device *dev, vx_tensor x, vx_tensor y, vx_tensor gate, vx_tensor row);
// vx_gate_add(x, y, gate, row), then vx_rms_norm_modulate(out, x, w, shift, scale, row, eps), bit for bit, in one pass over x:
// how one half of a block ends and the next begins.   All as there; gate, y and out in x's format, out not x but perhaps y, row given.
// Without shift and scale: vx_gate_add, then vx_rms_norm(out, x, w, eps, VX_NORM_ROUND_ONCE), in all formats that those two take.
typedef struct vx_gate_add_norm_params {
    vx_tensor gate, w, shift, scale, row;
    float eps;
} vx_gate_add_norm_params;
vx_status vx_gate_add_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor y, const vx_gate_add_norm_params *params);
// rn(rn(silu(gate)) * value), silu(g) = g / (1 + exp(-g)).   u [rows, 2n] act, halves in the order told   out [rows, n] act
vx_status vx_swiglu(vx_device *dev, vx_tensor out, vx_tensor u, bool gate_first);
// out = rn(silu(x)), rn to out's dtype; computed in f32.   out, x [rows, n], each bf16|f32|f16
vx_status vx_silu(vx_device *dev, vx_tensor out, vx_tensor x);
// Copies with conversion between any of f32, bf16, f16, i32, u8 (same shape, any strides, any rank): patchify, unpatchify,
// transposes, casts; a stride of 0 in x repeats what stands there. Float to float rounds to nearest even; equal dtypes copy bits;
// integers only to the same integer.
vx_status vx_copy(vx_device *dev, vx_tensor out, vx_tensor x);
// out = (c0*x0 + c1*x1) + c2*x2, f32, every product and sum rounded; 1 to 3 terms; out may be any of them. Any shape, contiguous.
typedef struct vx_term {
    float c;
    vx_tensor x;
} vx_term;
vx_status vx_blend(vx_device *dev, vx_tensor out, const vx_term *terms, int count);
// out[i] = x[i]*scale[c] + shift[c], c the index on `axis`, f32, product rounded, then sum.  Any strides, rank <= 5. In place
// allowed.
vx_status vx_affine(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor scale, vx_tensor shift, int axis);
// Rows of a table: out[i] = rn(table[ids[i]]).   table [vocab, n] f32|bf16|f16   ids [rows] i32, in 0..vocab-1, not checked
// quant (NULL: none) says how a quantised table is read, [vocab, stored width]; only the rows asked for are decoded, to out's
// format as quant.h says (f16: from f32). A pre_scale has no meaning here and is refused.
vx_status vx_embed(vx_device *dev, vx_tensor out, vx_tensor table, const vx_quant *quant, vx_tensor ids);
// out[i] = rn(((w0*t0 + w1*t1) + w2*t2) + w3*t3), t_c = table[ids[i,c]] widened, f32 products and sums: interpolated positions.
//   out [rows, n] act   table [vocab, n] f32|bf16|f16   ids [rows, 4] i32, not checked   weights [rows, 4] f32
vx_status vx_embed_blend(vx_device *dev, vx_tensor out, vx_tensor table, vx_tensor ids, vx_tensor weights);
// out = rn(gelu(x)), computed in f32; tanh: 0.5*x*(1+tanh(sqrt(2/pi)*(x+0.044715*x^3))), else 0.5*x*(1+erf(x*sqrt(1/2))):
// every product and sum rounded, from left to right, x^3 = (x*x)*x, vx_tanhf, vx_erff.
//   out, x [rows, n] act   out may be x
vx_status vx_gelu(vx_device *dev, vx_tensor out, vx_tensor x, bool tanh_form);
// flag[index] |= 1 if any element of x (f32|bf16|f16, any strides, rank <= 5) is NaN or infinite.   flag [n] i32
vx_status vx_mark_not_finite(vx_device *dev, vx_tensor flag, int64_t index, vx_tensor x);

// ---- attention ----
typedef struct vx_qk_norm_rope_params {
    vx_tensor q_weight, k_weight; // [head_dim] f32|bf16|f16; rank 0: ones
    bool skip_norm;               // rotate only
    float eps;
    vx_norm_rounding rounding;
    // [n, r] act, rows a multiple of n: row i turns by line i mod n, so that items under each other share a table; or rank 0: no
    // rotation. Channel j < r pairs with j + r; channels from 2r on only get the norm.
    //   y[j] = rn(rn(n[j]*c[j]) - rn(n[j+r]*s[j]))    y[j+r] = rn(rn(n[j+r]*c[j]) + rn(n[j]*s[j]))
    vx_tensor cos, sin;
    // Vision: cos and sin are f32 whatever act is, y[j] = rn(n[j]*c[j] - n[j+r]*s[j]) and its twin, rounded once at the end.
    bool rope_once;
} vx_qk_norm_rope_params;
// Per row and head, in place: RMS norm over head_dim, then rotation.   q [rows, heads, head_dim] act, any row and head
// strides; k the same with its own number of heads, or rank 0.
// Sum of squares over d: lane l takes elements l, l+32, ...: the first by a product, the others by fma; tree32; /d; 1/sqrtf.
vx_status vx_qk_norm_rope(vx_device *dev, vx_tensor q, vx_tensor k, const vx_qk_norm_rope_params *params);

typedef struct vx_attention_params {
    float scale; // 0 = 1/sqrt(head_dim)
    bool causal; // key i <= query i; needs as many keys as queries
} vx_attention_params;
// out[i,h,:] = rn(sum_j rn(e_ij) v[j,g,:] / sum_j e_ij), e = exp(scale * q.k - m), g = h / (heads / kv_heads).
//   out, q [sq, heads, d] act     k, v [skv, kv_heads, d] act     any row and head strides; d a multiple of 8, <= 256
// Or all four [items, ...], any stride between items: sequences that know nothing of each other. Each has the bits of a call of
// its own.
// Never holds sq x skv. Keys go in blocks of 512 in order; m is the running maximum, sums and partial outputs are rescaled
// by exp(m_old - m_new) when it grows (flash attention). Products as in vx_linear; sums in f32; the denominator adds the
// unrounded e. The result does not depend on the number of threads.
vx_status vx_attention(vx_device *dev, vx_tensor out, vx_tensor q, vx_tensor k, vx_tensor v, const vx_attention_params *params);

// ---- convolution and audio, f32 ----
// A line is a signal over time. Where [c, l] stands, [c, lines, l] is taken too, by all tensors of the call alike: lines that share
// the weights and know nothing of each other (the channels of a clip). Each has the bits of a call of its own.
// Sums are as said below, an fma for every product, unless the device has matrix units and was told that products may go by parts
// (vx_device_parts). Then a device may choose by shape to sum in its own order, and to leave of every product 2^-21 of its size and
// 2^-28 of the greatest |x| of the tensor times |w|. A number's bits still do not depend on runs or on how many positions there are;
// on other numbers of x only where these move the greatest |x| out of [2^-8, 2^15), or move it there. A result that meets NaN or
// infinity is NaN or infinite in both, not always the same.
typedef struct vx_conv1d_params {
    int64_t stride, padding, dilation; // 0 = 1, 0, 1
    vx_tensor bias;                    // [out channels] f32 or rank 0
    vx_tensor residual;                // as out, added after the bias; may be out itself; or rank 0
} vx_conv1d_params;
// Cross-correlation with zero padding at both ends of a line.   out [co, lo]   x [ci, l]   w [co, ci, kernel] f32, contiguous
// Sum over (kernel tap, channel): taps outer, channels inner, both increasing, fma.
vx_status vx_conv1d(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, const vx_conv1d_params *params);
// Transposed: out[o, n] = b[o] + sum over i, j with n + padding - j = stride*t of w[i,o,j] x[i,t].   w [ci, co, kernel]
vx_status vx_conv_transpose1d(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, const vx_conv1d_params *params);
// down2(snakebeta(up2(x))) per channel with replicate padding (audio VAE specification, A3).
//   out, x [c, l]   alpha, beta [c] f32, log scale as stored   up, down [12] f32
// snakebeta(v) = v + (1/(exp(beta)+1e-9)) * sin(exp(alpha)*v)^2
vx_status vx_snake_alias_free(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor alpha, vx_tensor beta, vx_tensor up,
                              vx_tensor down);

// y = x + (1/(alpha+1e-9)) * sin(alpha*x)^2 per channel.   out, x [c, l] f32   alpha [c] f32, as stored (linear)   out may be x
vx_status vx_snake(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor alpha);

// ---- convolution over pictures, f32 ----
typedef struct vx_conv3d_params {
    int64_t stride[3];                // frames, rows, columns; 0 = 1
    int64_t pad_begin[3], pad_end[3]; // at most 1 row and column; frames only in front, fewer than kt
    bool reflect;                     // rows and columns are padded by reflection without the edge (-1 reads 1); frames by zeros
    bool alone;                       // every frame is a clip of its own: needs stride[0] 1 and pad_begin[0] kt - 1
    vx_tensor bias;                   // [out channels] f32|bf16|f16 or rank 0
    vx_tensor residual;               // as out, added after the bias; may be out itself; or rank 0
} vx_conv3d_params;
// Cross-correlation.   out [co, to, ho, wo]   x [ci, t, h, w] f32, w contiguous rows   weight [co, ci, kt, kh, kw] f32|bf16|f16
// Taps that only meet the zero frames in front are left out (one frame costs a third; the same bits for finite weights).
// Sum: taps (frame, row, column) outer, channels inner, all increasing, fma. Threads do not change it.
vx_status vx_conv3d(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor weight, const vx_conv3d_params *params);
// (x - m)/sqrt(v + eps)*w[c] + b[c] over the channels of a group and one frame, two passes, biased variance; then
// silu if told (the composition, bit for bit).   out, x [c, t, h, w] f32   w, b [c] f32|bf16|f16   out may be x
// Sums in f64: per channel lane l takes columns l, l+32, ... of row after row; tree32; then over channels in order. m and v are
// rounded to f32; x - m is an f32 difference, whose square is exact; then a division by sqrtf(v + eps), a product, a sum.
vx_status vx_group_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, vx_tensor b, int64_t groups, float eps,
                        bool silu);

// ---- pictures, f32 ----
// Along `axis` of extent E (the same in all): out[i] = a[i]*(1 - i/E) + b[i]*(i/E), two products and a sum; i/E one division.
// Any strides, rank <= 5; out may be a or b.
vx_status vx_fade(vx_device *dev, vx_tensor out, vx_tensor a, vx_tensor b, int axis);
// Clamp to [lo, hi]; NaN stays NaN. Any strides, in place allowed.
vx_status vx_clamp(vx_device *dev, vx_tensor out, vx_tensor x, float lo, float hi);
// u8 = nearest(255 * clamp(x, 0, 1)), ties to even; NaN gives 0. Any strides.   out u8   x f32
vx_status vx_to_u8(vx_device *dev, vx_tensor out, vx_tensor x);

#endif
