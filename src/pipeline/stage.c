// What every stage does before and after its work: memory for activations and scratch, as planned, and on a device with memory
// of its own a place for the weights. There the weights of a stage stay where all fits; what other stages left gives way first;
// where even that is too little the device streams them (device.h), which costs time and never bits.
#include "pipeline/internal.h"

// Of the transformer only what the loop reads: modulation weights pass by once, before it.
static const char *passing_weights(vx_component_kind kind)
{
    return kind == VX_TRANSFORMER ? ".adaln_proj." : NULL;
}

uint64_t vx_stage_weights(const vx_model *m, vx_component_kind kind, uint64_t *largest)
{
    *largest = 0;
    if (!m->component[kind]) return 0;
    const uint64_t adapters = kind == VX_TRANSFORMER ? vx_adapter_weights(m) : 0;
    return vx_component_bound_bytes(m->component[kind], passing_weights(kind), largest) + adapters;
}

static vx_status make_room(vx_model *m, vx_component_kind kind, const vx_stage_need *need)
{
    uint64_t largest, want = vx_stage_weights(m, kind, &largest), taken = need->arena + need->scratch + VX_DEVICE_RESERVE;
    vx_device_memory memory = vx_device_memory_of(m->device);
    vx_weight_stats weights = vx_device_weights(m->device);
    uint64_t room = memory.free + weights.resident;
    room = room > taken ? room - taken : 0;
    if (want + weights.resident > room)
        for (int i = 0; i < VX_COMPONENT_KINDS; i++)
            if (i != (int)kind && m->component[i]) vx_component_forget(m->component[i], m->device);
    return vx_device_weight_budget(m->device, room);
}

// What is held beside copies of weights: folded ones, and the arenas of stages.
static uint64_t others(const vx_model *m)
{
    const uint64_t held = vx_device_memory_of(m->device).held, weights = vx_device_weights(m->device).resident;
    return held > weights ? held - weights : 0;
}

vx_status vx_stage_enter(vx_model *m, vx_component_kind kind, const vx_stage_need *need, vx_arena **arena)
{
    *arena = NULL;
    if (m->component[kind]) VX_TRY(vx_component_check_scales(m->component[kind]));
    if (vx_device_far(m->device)) VX_TRY(make_room(m, kind, need));
    vx_device_memory_reset(m->device);
    m->stage = kind;
    m->stage_before = others(m);
    VX_TRY(vx_arena_create(m->device, arena, need->arena));
    vx_status s = vx_device_reserve(m->device, need->scratch);
    if (s.code) vx_arena_destroy(arena);
    return s;
}

static void keep_peak(vx_model *m)
{
    const uint64_t peak = vx_device_memory_of(m->device).peak;
    if (peak > m->device_peak) m->device_peak = peak;
}

void vx_stage_loop(vx_model *m)
{
    keep_peak(m);
    vx_device_memory_reset(m->device);
}

void vx_stage_leave(vx_model *m, vx_arena **arena)
{
    const uint64_t peak = vx_device_memory_of(m->device).peak, not_its = vx_device_weights(m->device).resident + m->stage_before;
    if (*arena) m->stage_peak[m->stage] = peak > not_its ? peak - not_its : 0;
    keep_peak(m);
    vx_arena_destroy(arena);
    vx_device_release(m->device);
}
