// What went wrong, by value. Every function of Vortex that can fail returns a vx_status; there is no hidden "last error".
//
// A code is stable for ever, printed as VX-<number>; its thousands digit is the class and, except for cancellation,
// the exit status of the program (docs/errors.md lists every code with cause and remedy).
#ifndef VORTEX_STATUS_H
#define VORTEX_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

// X(name, number, one line for docs/errors.md)
#define VX_CODES(X)                                                                                               \
    X(VX_ERR_INTERNAL, 1001, "a fault of Vortex itself; please report it")                                        \
    X(VX_ERR_SHAPE, 1101, "an operator was called with shapes that do not fit together")                          \
    X(VX_ERR_DTYPE, 1102, "an operator was called with a number format that it does not take")                    \
    X(VX_ERR_UNSUPPORTED, 1103, "the device cannot do this operation")                                            \
    X(VX_ERR_NOT_FINITE, 1201, "a result or an adapter holds NaN or infinity; the message says where")            \
    X(VX_ERR_USAGE, 2001, "unknown command or option, or an argument is missing")                                 \
    X(VX_ERR_VALUE, 2002, "a value cannot be understood")                                                         \
    X(VX_ERR_RANGE, 2003, "a value lies outside its range")                                                       \
    X(VX_ERR_REQUIRED, 2004, "something required is missing from the request")                                    \
    X(VX_ERR_CONFLICT, 2005, "two parts of the request contradict each other")                                    \
    X(VX_ERR_UNAVAILABLE, 2006, "the request asks for something that this version does not do")                   \
    X(VX_ERR_PROMPT, 2007, "the prompt is empty, too long, not UTF-8, or holds a pad token")                      \
    X(VX_ERR_PROMPT_FILE, 2008, "the prompt or jobs file cannot be read")                                         \
    X(VX_ERR_MODEL_OPEN, 3001, "a model file cannot be read")                                                     \
    X(VX_ERR_MODEL_UNKNOWN, 3002, "nothing of MiniMax H3 was recognised at this path")                            \
    X(VX_ERR_MODEL_COMPONENT, 3003, "a component of the model is missing")                                        \
    X(VX_ERR_MODEL_VARIANT, 3004, "the checkpoint is the other partition (FL2VA or Ref2VA)")                      \
    X(VX_ERR_MODEL_LAYOUT, 3005, "the layout of the checkpoint cannot be told or is not supported")               \
    X(VX_ERR_MODEL_QKV, 3006, "the order of the query, key and value rows cannot be told")                        \
    X(VX_ERR_MODEL_AMBIGUOUS, 3007, "several files could be the same component")                                  \
    X(VX_ERR_FILE_FORMAT, 3101, "a file is not the container that it should be")                                  \
    X(VX_ERR_FILE_TRUNCATED, 3102, "a file is shorter than its header says")                                      \
    X(VX_ERR_TENSOR_DUPLICATE, 3103, "a tensor is there twice")                                                   \
    X(VX_ERR_TENSOR_SHAPE, 3104, "a tensor has another shape than the configuration says")                        \
    X(VX_ERR_TENSOR_MISSING, 3105, "a tensor is missing")                                                         \
    X(VX_ERR_TENSOR_UNEXPECTED, 3106, "a tensor does not belong to this model")                                   \
    X(VX_ERR_TENSOR_DTYPE, 3107, "a tensor has a number format that is not supported here")                       \
    X(VX_ERR_INDEX, 3108, "the index of a sharded checkpoint is wrong")                                           \
    X(VX_ERR_FILE_LIMIT, 3109, "a file exceeds a limit")                                                          \
    X(VX_ERR_FILE_POINTER, 3110, "a pointer or web page stands in place of the file: the download is incomplete") \
    X(VX_ERR_FILE_PICKLE, 3111, "pickled files are never opened")                                                 \
    X(VX_ERR_FILE_CHANGED, 3112, "a mapped file shrank, or a part of it could no longer be read, while in use")   \
    X(VX_ERR_QUANT_FORMAT, 3113, "a tensor is stored in a quantised format that is not supported")                \
    X(VX_ERR_QUANT_SCALE, 3114, "a quantised tensor's scales are missing, superfluous, misshapen or not finite")  \
    X(VX_ERR_CONFIG, 3201, "a configuration file is wrong or contradicts the tensors")                            \
    X(VX_ERR_TOKENIZER, 3202, "a tokenizer file is wrong")                                                        \
    X(VX_ERR_OUTPUT_EXISTS, 4001, "the output file exists already")                                               \
    X(VX_ERR_OUTPUT, 4002, "an output file cannot be written")                                                    \
    X(VX_ERR_STORAGE_FULL, 4003, "no space is left for the output")                                               \
    X(VX_ERR_OUTPUT_CHECK, 4004, "the finished file does not hold what was written; it was discarded")            \
    X(VX_ERR_ENCODER, 4005, "the encoder or muxer failed or is not there")                                        \
    X(VX_ERR_MEMORY, 5001, "memory could not be allocated")                                                       \
    X(VX_ERR_MEMORY_PLAN, 5002, "the request needs more memory than there is")                                    \
    X(VX_ERR_DEVICE_NONE, 6001, "the device asked for is not there")                                              \
    X(VX_ERR_DEVICE, 6002, "the device failed")                                                                   \
    X(VX_ERR_INPUT_OPEN, 7001, "an input file cannot be read")                                                    \
    X(VX_ERR_INPUT_FORMAT, 7002, "an input file does not hold what it should")                                    \
    X(VX_ERR_CANCELLED, 8001, "the work was cancelled")

typedef enum vx_code {
    VX_OK = 0,
#define VX_CODE_ENUM(name, number, text) name = number,
    VX_CODES(VX_CODE_ENUM)
#undef VX_CODE_ENUM
} vx_code;

// Strings are UTF-8, terminated, possibly cut; field, remedy may be empty. `field` is a request member ("frames").
typedef struct vx_status {
    vx_code code;
    char field[40];
    char message[480];
    char remedy[200];
} vx_status;

#ifdef __cplusplus
}
#endif
#endif
