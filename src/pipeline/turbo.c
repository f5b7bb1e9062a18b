// Adapters of a request, and the settings of distilled ones: what the table of known files says, unless the user says otherwise.
// No file is opened here.
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "pipeline/internal.h"

static const char *const list_names[] = {
    [VX_TURBO_OFFICIAL] = "official", [VX_TURBO_SIMPLE] = "simple", [VX_TURBO_RUNGS] = "rungs", [VX_TURBO_BANK] = "bank"
};
const char *vx_turbo_list_name(vx_turbo_list list)
{
    return list_names[list];
}

// FastH3's rungs of the table of 1000 (denoiser specification 6.8).
static const int fast_rungs[] = { 999, 874, 749, 624, 500, 375, 250, 125 };
enum { FAST_STEPS = sizeof fast_rungs / sizeof *fast_rungs, BANK_INTERVALS = 32 };

static vx_status take_lora(vx_resolved *out, const vx_request *r, int i)
{
    const vx_lora *l = &r->loras[i];
    vx_resolved_lora *to = &out->lora[i];
    if (!l->struct_size || !l->path || !*l->path) return vx_fail_field(VX_ERR_REQUIRED, "lora", "adapter %d has no file", i + 1);
    to->strength = l->strength_set ? l->strength : 1;
    to->alpha = l->alpha;
    if (!isfinite(to->strength))
        return vx_fail_field(VX_ERR_RANGE, "lora", "%s: a strength must be finite", vx_path_name(l->path));
    if (!isfinite(to->alpha) || to->alpha < 0)
        return vx_fail_field(VX_ERR_RANGE, "lora_alpha", "%s: alpha %g is not above 0", vx_path_name(l->path), to->alpha);
    to->path = vx_strdup(l->path);
    VX_NEED_MEMORY(to->path, "an adapter");
    out->loras = i + 1;
    return vx_ok();
}

// What the user set himself and differs from the preset stays, and is said.
static void note_differences(const vx_turbo *t, const vx_request *r, vx_notes *notes)
{
    const int steps = r->num_inference_steps ? r->num_inference_steps - 1 : r->evaluations;
    if (r->sigma_count) vx_note(notes, "turbo %d: your sigmas are used in place of its list", t->steps);
    else if (steps && steps != t->steps) vx_note(notes, "turbo %d: your %d steps are used", t->steps, steps);
    if (r->flow_shift != 0 && r->flow_shift != t->shift)
        vx_note(notes, "turbo %d: your shift %g is used in place of %g", t->steps, (double)r->flow_shift, (double)t->shift);
    if (r->audio_flow_shift != 0 && r->audio_flow_shift != t->audio_shift)
        vx_note(notes, "turbo %d: your audio shift %g is used in place of %g", t->steps, (double)r->audio_flow_shift,
                (double)t->audio_shift);
    if (r->schedule) vx_note(notes, "turbo %d: your schedule %s is used in place of its list", t->steps, r->schedule);
    if (r->sampler && !strcmp(r->sampler, "res_multistep"))
        vx_note(notes, "turbo %d: your sampler %s is used in place of Euler's plain step", t->steps, r->sampler);
}

// The first adapter that was made for so many steps. One made for another number, alone, is a contradiction.
static vx_status find_preset(vx_resolved *out, const vx_request *r, vx_notes *notes)
{
    vx_turbo *t = &out->turbo;
    const vx_adapter_preset *other = NULL;
    int which = 0;
    for (int i = 0; i < out->loras; i++) {
        const vx_adapter_preset *p = vx_adapter_preset_of(out->lora[i].path);
        if (p && p->steps != t->steps) other = p;
        if (!p || p->steps != t->steps) continue;
        if (t->preset && (p->shift != t->preset->shift || p->list != t->preset->list))
            vx_note(notes, "two Turbo adapters: the settings of %s are used", t->preset->name);
        if (!t->preset) which = i;
        if (!t->preset) t->preset = p;
    }
    if (!t->preset && other)
        return vx_remedy(
            vx_fail_field(VX_ERR_CONFLICT, "turbo", "turbo %d: %s was made for %d steps", t->steps, other->name, other->steps),
            "give --turbo %d", other->steps);
    if (!t->preset) {
        vx_note(notes, "turbo %d: no adapter of the request is in the table of known files; shifts 12 and 3 are used", t->steps);
        return vx_ok();
    }
    if (t->preset->caution) vx_note(notes, "%s: %s", t->preset->name, t->preset->caution);
    if (!r->loras[which].strength_set) out->lora[which].strength = t->preset->strength;
    else if (r->loras[which].strength != t->preset->strength)
        vx_note(notes, "%s: your strength %g is used, its maker advises %g", t->preset->name, (double)r->loras[which].strength,
                (double)t->preset->strength);
    return vx_ok();
}

static vx_status resolve_turbo(vx_resolved *out, const vx_request *r, vx_notes *notes)
{
    vx_turbo *t = &out->turbo;
    if (r->turbo != 4 && r->turbo != 8) return vx_fail_field(VX_ERR_RANGE, "turbo", "turbo %d is neither 4 nor 8", r->turbo);
    if (!out->loras)
        return vx_remedy(vx_fail_field(VX_ERR_REQUIRED, "turbo", "turbo %d needs the adapter that makes it possible", r->turbo),
                         "give --lora FILE, or --steps and --shift for a model that has one merged in");
    t->steps = r->turbo;
    VX_TRY(find_preset(out, r, notes));
    t->shift = t->preset ? t->preset->shift : 12;
    t->audio_shift = t->preset ? t->preset->audio_shift : 3;
    const int steps = r->num_inference_steps ? r->num_inference_steps - 1 : r->evaluations;
    t->list = t->preset && !r->sigma_count && !r->schedule;
    if (t->list && steps && steps != t->steps && t->preset->list == VX_TURBO_RUNGS) t->list = false;
    note_differences(t, r, notes);
    return vx_ok();
}

// A distilled adapter at other settings gives a picture, and a bad one.
static void note_presets(const vx_resolved *out, const vx_request *r, vx_notes *notes)
{
    const int steps = r->num_inference_steps ? r->num_inference_steps - 1 : r->evaluations;
    for (int i = 0; i < out->loras; i++) {
        const vx_adapter_preset *p = vx_adapter_preset_of(out->lora[i].path);
        if (p && !out->turbo.steps && (steps != p->steps || r->flow_shift != p->shift) && out->lora[i].strength != 0)
            vx_note(notes, "%s was made for %d steps with shifts %g and %g: --turbo %d sets them", p->name, p->steps,
                    (double)p->shift, (double)p->audio_shift, p->steps);
    }
}

vx_status vx_resolve_loras(vx_resolved *out, const vx_request *r, vx_notes *notes)
{
    if (r->lora_count < 0 || r->lora_count > VX_MAX_LORAS || (r->lora_count && !r->loras))
        return vx_fail_field(VX_ERR_RANGE, "lora", "%d adapters, at most %d", r->lora_count, VX_MAX_LORAS);
    for (int i = 0; i < r->lora_count; i++) VX_TRY(take_lora(out, r, i));
    const char *mode = r->lora_mode ? r->lora_mode : "auto";
    out->lora_merge = !strcmp(mode, "merge");
    if (!out->lora_merge && strcmp(mode, "auto") && strcmp(mode, "branch"))
        return vx_fail_field(VX_ERR_VALUE, "lora_mode", "lora_mode: '%.60s' is none of auto, branch, merge", mode);
    out->lora_partial = r->lora_allow_partial;
    // Not an error: the options may be those of all requests of a list.
    if (!r->lora_count && strcmp(mode, "auto")) vx_note(notes, "lora_mode %s: no adapter is given, nothing to %s", mode, mode);
    if (!r->lora_count && out->lora_partial) vx_note(notes, "lora_allow_partial: no adapter is given");
    if (r->turbo) VX_TRY(resolve_turbo(out, r, notes));
    note_presets(out, r, notes);
    return vx_ok();
}

vx_status vx_turbo_sigmas(vx_resolved *out, int points)
{
    const int steps = points - 1;
    switch (out->turbo.preset->list) {
    case VX_TURBO_OFFICIAL: break;
    case VX_TURBO_SIMPLE: {
        // Two clocks: the sound has its own table, not a map of the picture's.
        vx_sigmas sound;
        out->schedule = VX_SCHEDULE_SIMPLE;
        VX_TRY(vx_sigmas_make(&out->sigmas, VX_SCHEDULE_SIMPLE, points, out->shift, out->audio_shift));
        VX_TRY(vx_sigmas_make(&sound, VX_SCHEDULE_SIMPLE, points, out->audio_shift, out->audio_shift));
        for (int i = 0; i < out->sigmas.count; i++) out->sigmas.audio[i] = sound.video[i];
        return vx_ok();
    }
    case VX_TURBO_RUNGS:
        out->schedule = VX_SCHEDULE_EXPLICIT;
        return vx_sigmas_rungs(&out->sigmas, fast_rungs, FAST_STEPS, out->shift, out->audio_shift);
    case VX_TURBO_BANK:
        out->schedule = VX_SCHEDULE_EXPLICIT;
        return vx_sigmas_coarse(&out->sigmas, BANK_INTERVALS, steps, out->shift, out->audio_shift);
    }
    out->schedule = VX_SCHEDULE_OFFICIAL;
    return vx_sigmas_make(&out->sigmas, VX_SCHEDULE_OFFICIAL, points, out->shift, out->audio_shift);
}
