// Writing a complete small checkpoint: the parts of the room behind vx_demo_model_write (include/vortex/vortex.h).
//
//   write.c          the folders, their files in the official layout, the public function
//   sizes.c          dimensions of the two kinds
//   tensors.c        a growing list of named tensors, all zero at first
//   networks.c       the list of each network: names, shapes, formats
//   encoders.c       the same of the networks that read pictures, clips and sounds
//   config.c         config.json and its companions
//   vocabulary.c     a byte-level BPE tokenizer of its own
//   random.c         fills a list with random weights ("random")
//   hollow.c         the released dimensions, for lists whose values are never made ("released")
//   pretty*.c        fill a list with constructed ones (pretty.h)
//
// Two partitions: FL2VA is whole, Ref2VA has a transformer of its own and shares the rest.
// Left out are the text encoder's last norm and head, which nothing reads.
//
// Numbers: every value is a function of seed and tensor name by integer arithmetic, correctly rounded operations and
// tensor/mathf.h, so that the bytes are the same on every machine.
#ifndef VX_DEMO_DEMO_H
#define VX_DEMO_DEMO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/tensor.h"

// Fixed by the model: 24 video and 32 audio channels, 16 rotary frequencies an axis, 4 register tokens.
enum {
    VX_DEMO_VIDEO_CHANNELS = 24,
    VX_DEMO_AUDIO_CHANNELS = 32,
    VX_DEMO_ROPE_FREQS = 16,
    VX_DEMO_REGISTERS = 4,
    VX_DEMO_STAGES = 7,  // upsampling stages of the audio decoder
    VX_DEMO_KERNELS = 3, // residual blocks of a stage
    VX_DEMO_PAIRS = 3,   // convolution pairs of a block
    VX_DEMO_PATCH = 3 * 4 * 16 * 16,
    VX_DEMO_LEVELS = 6,         // of the video encoder, at most
    VX_DEMO_ENCODER_STAGES = 5, // of the audio encoder
    VX_DEMO_DEEP = 3,           // features of the vision tower's inner blocks
};
extern const int vx_demo_rates[VX_DEMO_STAGES];                 // 5 5 2 2 2 2 2
extern const int vx_demo_kernels[VX_DEMO_KERNELS];              // 3 7 11
extern const int vx_demo_encoder_rates[VX_DEMO_ENCODER_STAGES]; // 2 4 4 5 5
int vx_demo_space_stride(int level);                            // 2 2 2 2 1 1
int vx_demo_time_stride(int level);                             // 1 2 2 1 1 1

typedef struct vx_demo_sizes {
    struct {
        int64_t hidden, layers, refiner_layers, heads, head_dim, ffn, timestep_dim, time_hidden, time_dim;
    } denoiser;
    struct {
        int64_t hidden, layers, heads, kv_heads, head_dim, ffn, section[3], vocabulary;
    } text;
    struct {
        int64_t hidden, layers, heads, ffn, side, deep[VX_DEMO_DEEP]; // side: of the square of learned positions
    } vision;
    struct {
        int64_t layers, heads, head_dim; // of the decoder; FFN width 4 * heads * head_dim
        int levels;                      // of the encoder
        int64_t widths[VX_DEMO_LEVELS];  // multiples of the first
    } video;
    struct {
        int64_t latent_dim, decoder_dim, encoder_dim, heads;
    } audio;
    float video_mean[VX_DEMO_VIDEO_CHANNELS], video_std[VX_DEMO_VIDEO_CHANNELS];
    float audio_mean[VX_DEMO_AUDIO_CHANNELS], audio_std[VX_DEMO_AUDIO_CHANNELS];
} vx_demo_sizes;
void vx_demo_sizes_random(vx_demo_sizes *sizes, uint64_t seed); // vocabulary is left to the tokenizer
void vx_demo_sizes_released(vx_demo_sizes *sizes);
void vx_demo_sizes_second(vx_demo_sizes *sizes); // the transformer of Ref2VA: smaller, every extent another

// ---- tensors ----
enum { VX_DEMO_NAME = 96 };
typedef struct vx_demo_tensor {
    char name[VX_DEMO_NAME];
    vx_dtype dtype; // in the file: VX_F32 or VX_BF16
    int rank;
    int64_t shape[VX_MAX_RANK], count;
    float *value; // [count], rounded when it is written; NULL: a hole in the file
} vx_demo_tensor;
typedef struct vx_demo_tensors {
    vx_demo_tensor *tensor;
    int count, capacity;
    vx_dtype dtype; // of the tensors to come
    bool hollow;    // whose values are never made, but for constants
} vx_demo_tensors;

vx_status vx_demo_add(vx_demo_tensors *set, int rank, const int64_t *shape, const char *format, ...) VX_PRINTF(4, 5);
#define VX_DEMO_SHAPE(...)                                                         \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]) \
    {                                                                              \
        __VA_ARGS__                                                                \
    }
// A tensor that was added. Asking for another is a fault of this room, which the tests would meet first: it asserts.
vx_demo_tensor *vx_demo_get(vx_demo_tensors *set, const char *format, ...) VX_PRINTF(2, 3);
// Writes model.safetensors (shards 0) or model-0000k-of-0000n.safetensors with their index into the folder.
vx_status vx_demo_tensors_write(const vx_demo_tensors *set, const char *folder, int shards, bool replace);
void vx_demo_tensors_free(vx_demo_tensors *set);

// The tensors of each network in the order of the file's names, zero but for constants (rotary frequencies, filters).
vx_status vx_demo_transformer(vx_demo_tensors *set, const vx_demo_sizes *sizes);
vx_status vx_demo_language(vx_demo_tensors *set, const vx_demo_sizes *sizes);
vx_status vx_demo_video(vx_demo_tensors *set, const vx_demo_sizes *sizes);
vx_status vx_demo_audio(vx_demo_tensors *set, const vx_demo_sizes *sizes);
// Their parts that read; called by the above.
vx_status vx_demo_vision(vx_demo_tensors *set, const vx_demo_sizes *sizes);
vx_status vx_demo_video_encoder(vx_demo_tensors *set, const vx_demo_sizes *sizes);
vx_status vx_demo_audio_encoder(vx_demo_tensors *set, const vx_demo_sizes *sizes);

vx_status vx_demo_linear(vx_demo_tensors *set, int64_t n, int64_t k, bool bias, const char *prefix, const char *name);
// A convolution as direction and length. `rows`: extent of axis 0, the output channels or, transposed, the input channels.
vx_status vx_demo_normed_conv(vx_demo_tensors *set, int64_t rows, int64_t columns, int64_t kernel, int64_t bias,
                              const char *prefix, const char *name);

// ---- weights ----
// splitmix64 (Steele, Lea, Flood 2014): one 64-bit word a call.
uint64_t vx_demo_next(uint64_t *state);
// A stream for each name.
uint64_t vx_demo_stream(uint64_t seed, const char *name);
// Near enough normal, mean 0, deviation 1, on a grid of quarters: the ones among 64 random bits.
float vx_demo_normal(uint64_t *state);
// Weights that make every path matter: matrices N(0, scale/fan in), those of the modulation three times as much, norms near
// 1, those of queries and keys near 2 so that attention is not flat, biases near 0.
void vx_demo_randomise(vx_demo_tensors *set, uint64_t seed, float scale);

// ---- files ----
// New references; NULL when there is no memory.
json_t *vx_demo_model_index(bool second); // of Ref2VA instead of FL2VA
json_t *vx_demo_transformer_config(const vx_demo_sizes *sizes);
json_t *vx_demo_language_config(const vx_demo_sizes *sizes, const json_t *special); // special: token to id
json_t *vx_demo_video_config(const vx_demo_sizes *sizes);
json_t *vx_demo_video_source_config(const vx_demo_sizes *sizes);
json_t *vx_demo_audio_config(const vx_demo_sizes *sizes);
json_t *vx_demo_audio_metadata(const vx_demo_sizes *sizes);

// Writes folder/name; json_file takes the reference over.
vx_status vx_demo_text_file(const char *folder, const char *name, const char *text, size_t size, bool replace);
vx_status vx_demo_json_file(const char *folder, const char *name, json_t *value, bool replace);

// vocab.json, merges.txt, tokenizer_config.json. *ids: how many there are. *special: the added tokens' ids, a new reference.
vx_status vx_demo_tokenizer_write(const char *folder, bool replace, int64_t *ids, json_t **special);

#endif
