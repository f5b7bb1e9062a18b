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

// Whether a device that did not open is one that the machine has. A driver older than the build shows none of its cards.
static bool card_is_there(void)
{
    vx_cuda_info info;
    (void)vx_cuda_query(&info, 0);
    return info.devices > 0 || (*info.driver_cuda && atoi(info.driver_cuda) < atoi(info.runtime));
}

// On the processor, because it was asked for or because of `cause`: options of a GPU's are refused, with the cause where there
// is a card. Without them such a card is worth a warning, none at all a note, and a build without CUDA nothing.
static vx_status settle_for_processor(vx_status cause, bool no_graphs, bool cudnn)
{
    const bool card = cause.code && card_is_there();
    const char *why = cause.code ? cause.message : "this runs on the processor";
    if (card && (no_graphs || cudnn))
        return snprintf(cause.field, sizeof cause.field, "%s", no_graphs ? "no_graphs" : "attention"), cause;
    if (no_graphs)
        return vx_remedy(vx_fail_field(VX_ERR_DEVICE_NONE, "no_graphs", "only a GPU has graphs: %s", why),
                         "leave --no-graphs out");
    if (cudnn)
        return vx_remedy(vx_fail_field(VX_ERR_DEVICE_NONE, "attention", "attention cudnn needs a GPU: %s", why),
                         "leave --attention out");
    if (cause.code && vx_cuda_built())
        vx_log(card ? VX_LOG_WARNING : VX_LOG_INFO, "running on the processor: %s%s%s", why, *cause.remedy ? "; " : "",
               cause.remedy);
    return vx_ok();
}

// "auto" takes the first GPU and falls back to the processor, saying why; "cuda" insists.
vx_status vx_open_device(vx_context *context, const char *device, const char *attention, bool no_graphs, vx_device **out,
                         vx_device **planner)
{
    vx_attention_choice choice = VX_ATTENTION_AUTO;
    vx_status s = vx_ok();
    *out = context->device;
    *planner = context->plan;
    if (!device) device = "auto";
    VX_TRY(attention_choice(attention ? attention : "auto", &choice));
    bool automatic = !strcmp(device, "auto");
    int ordinal = automatic ? 0 : cuda_ordinal(device);
    if (ordinal < 0 && strcmp(device, "cpu"))
        return vx_fail_field(VX_ERR_VALUE, "device", "device '%.40s' is none of auto, cpu, cuda[:N]", device);
    if (ordinal >= 0) {
        s = open_cuda(ordinal, choice, !no_graphs, out, planner);
        if (!s.code) return s;
        if (!automatic) return snprintf(s.field, sizeof s.field, "device"), vx_within(s, "device %s", device);
    }
    return settle_for_processor(s, no_graphs, choice == VX_ATTENTION_CUDNN);
}
