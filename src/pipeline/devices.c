// Which device a name means.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pipeline/internal.h"

// "cuda" or "cuda:N": N, else -1.
static int cuda_ordinal(const char *device)
{
    if (strncmp(device, "cuda", 4)) return -1;
    if (!device[4]) return 0;
    if (device[4] != ':' || device[5] < '0' || device[5] > '9') return -1;
    char *end;
    long n = strtol(device + 5, &end, 10);
    return *end || n > 1023 ? -1 : (int)n;
}

static vx_status open_cuda(int ordinal, vx_attention_choice attention, bool graphs, vx_device **out, vx_device **planner)
{
    vx_device *device = NULL;
    VX_TRY(vx_device_cuda_create(&device, &(vx_cuda_params){ .ordinal = ordinal, .attention = attention }));
    vx_status s = vx_device_plan_create(planner, device);
    if (s.code) {
        vx_device_destroy(&device);
        return s;
    }
    vx_device_graphs(device, graphs);
    vx_device_parts(device, true); // jobs say for themselves
    *out = device;
    return vx_ok();
}

static vx_status attention_choice(const char *name, vx_attention_choice *out)
{
    static const char *const choices[] = { "auto", "own", "cudnn" };
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, choices[i])) return *out = (vx_attention_choice)i, vx_ok();
    return vx_fail_field(VX_ERR_VALUE, "attention", "attention '%.40s' is none of auto, own, cudnn", name);
}

// "auto" takes the first GPU that can be used and falls back to the processor, saying why; "cuda" insists.
vx_status vx_open_device(vx_context *context, const char *device, const char *attention, bool no_graphs, vx_device **out,
                         vx_device **planner)
{
    vx_attention_choice choice = VX_ATTENTION_AUTO;
    *out = context->device;
    *planner = context->plan;
    if (!device) device = "auto";
    VX_TRY(attention_choice(attention ? attention : "auto", &choice));
    bool automatic = !strcmp(device, "auto");
    int ordinal = automatic ? 0 : cuda_ordinal(device);
    if (ordinal < 0 && strcmp(device, "cpu"))
        return vx_fail_field(VX_ERR_VALUE, "device", "device '%.40s' is none of auto, cpu, cuda[:N]", device);
    if (ordinal >= 0 && (!automatic || vx_cuda_built())) {
        vx_status s = open_cuda(ordinal, choice, !no_graphs, out, planner);
        if (!s.code) return s;
        if (!automatic) return snprintf(s.field, sizeof s.field, "device"), vx_within(s, "device %s", device);
        vx_log(VX_LOG_INFO, "running on the processor: %s", s.message);
    }
    if (no_graphs)
        return vx_remedy(vx_fail_field(VX_ERR_DEVICE_NONE, "no_graphs", "only a GPU has graphs: this runs on the processor"),
                         "leave --no-graphs out");
    if (choice == VX_ATTENTION_CUDNN)
        return vx_remedy(
            vx_fail_field(VX_ERR_DEVICE_NONE, "attention", "attention cudnn needs a GPU: this runs on the processor"),
            "leave --attention out");
    return vx_ok();
}
