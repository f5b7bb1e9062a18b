// The machine as Vortex sees it, and one remedy per problem.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "pipeline/internal.h"

// "model name" of the first processor, as the kernel tells it.
static void processor_name(char *out, size_t size)
{
    char *text = NULL;
    size_t length;
    snprintf(out, size, "unknown");
    if (vx_file_read(&text, &length, "/proc/cpuinfo", 1 << 22, VX_ERR_INTERNAL).code) return;
    char *line = strstr(text, "model name"), *colon = line ? strchr(line, ':') : NULL, *end = colon ? strchr(colon, '\n') : NULL;
    if (end && colon[1]) {
        *end = 0;
        snprintf(out, size, "%s", colon + 2);
    }
    vx_free(text);
}

static void problem(json_t *list, const char *what, const char *remedy)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "problem", what, "remedy", remedy));
}

static json_t *text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static void cuda_problems(json_t *list, const vx_cuda_info *info)
{
    if (!*info->cublas)
        problem(list, "cuBLASLt was not found: without it no CUDA device opens, and jobs run on the processor",
                "install CUDA's cuBLAS, or name the folder of libcublasLt.so.13 in VORTEX_LIBRARY_PATH");
    if (!*info->cudnn)
        problem(list,
                "cuDNN was not found: attention runs on the own kernels alone (on Hopper these are the faster ones; "
                "elsewhere cuDNN may be)",
                "install cuDNN 9 (libcudnn.so.9), or name its folder in VORTEX_LIBRARY_PATH");
    if (info->memory_free < (uint64_t)16 << 30)
        problem(list, "less than 16 GiB of device memory are free: of the released weights only a window fits, the rest streams",
                "close other programs on the GPU, or use a quantised checkpoint");
}

static json_t *card(const vx_cuda_info *info)
{
    return json_pack("{s:o, s:o, s:i, s:I, s:I}", "device", json_sprintf("cuda:%d", info->ordinal), "name",
                     text_or_null(info->name), "compute_capability", info->sm, "memory_bytes", (json_int_t)info->memory_total,
                     "free_bytes", (json_int_t)info->memory_free);
}

// Every card, and of the first, which jobs take unless told otherwise, what each missing library costs.
static json_t *cuda_object(json_t *devices, json_t *problems)
{
    vx_cuda_info first, info;
    vx_status s = vx_cuda_query(&first, 0);
    if (s.code) problem(problems, s.message, *s.remedy ? s.remedy : "everything works on the processor: --device cpu");
    else cuda_problems(problems, &first);
    json_t *cards = json_array();
    for (int i = 0; i < first.devices; i++) {
        (void)vx_cuda_query(&info, i);
        json_array_append_new(cards, card(&info));
        json_array_append_new(devices, json_sprintf("cuda:%d", i));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:I, s:I, s:o}", "name", text_or_null(first.name), "driver",
                     text_or_null(first.driver), "driver_cuda", text_or_null(first.driver_cuda), "runtime",
                     text_or_null(first.runtime), "cublaslt", text_or_null(first.cublas), "cudnn", text_or_null(first.cudnn),
                     "devices", first.devices, "compute_capability", first.sm, "memory_bytes", (json_int_t)first.memory_total,
                     "free_bytes", (json_int_t)first.memory_free, "cards", cards);
}

// No problem by itself, but nobody should find out by waiting.
static json_t *without_cuda(json_t *notes)
{
    json_array_append_new(notes, json_string("without CUDA every job runs on the processor: hours per evaluation at the released "
                                             "size (1344x768). With it: cmake --preset cuda && cmake --build build/cuda, where "
                                             "CUDA's nvcc is"));
    return json_string("not in this build");
}

vx_status vx_doctor(vx_context *context, char **json)
{
    char cpu[128], media[400];
    json_t *o = json_object(), *problems = json_array(), *notes = json_array();
    processor_name(cpu, sizeof cpu);
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), available = vx_memory_available();
    vx_status s = vx_media_versions(media, sizeof media);
    json_object_set_new(o, "vortex_version", json_string(vx_version()));
    json_object_set_new(o, "cpu",
                        json_pack("{s:s, s:s, s:i}", "name", cpu, "instruction_set", vx_device_isa(context->device), "threads",
                                  context->threads));
    json_object_set_new(o, "memory",
                        json_pack("{s:I, s:I}", "total_bytes", (json_int_t)total, "available_bytes", (json_int_t)available));
    json_t *devices = json_pack("[s]", "cpu");
    json_object_set_new(o, "cuda", vx_cuda_built() ? cuda_object(devices, problems) : without_cuda(notes));
    json_object_set_new(o, "devices", devices);
    json_object_set_new(o, "media", s.code ? json_null() : json_string(media));
    if (s.code)
        problem(problems, s.message,
                s.remedy[0] ? s.remedy
                            : "install the packages that tools/install-dependencies names; latents and tensors work without");
    const char *isa = vx_device_isa(context->device);
    if (!vx_has_prefix(isa, "avx512"))
        problem(problems, "the processor has no AVX-512: everything works, several times slower",
                "use a machine with AVX-512 (BF16) for CPU work");
    if (available < (uint64_t)4 << 30)
        problem(problems, "less than 4 GiB of memory are free",
                "close other programs; the released weights also want their files in the page cache (about 140 GB)");
    json_object_set_new(o, "notes", notes);
    json_object_set_new(o, "problems", problems);
    return vx_json_text(o, json);
}
