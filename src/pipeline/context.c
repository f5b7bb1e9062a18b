// The context: log, threads, the computing device and the one that plans for it. And the few functions without a handle.
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "pipeline/internal.h"

const char *vx_version(void)
{
    return VORTEX_VERSION;
}
const char *vx_commit(void)
{
    return VORTEX_COMMIT;
}
const char *vx_build(void)
{
    return VORTEX_BUILD;
}
void vx_text_free(char *text)
{
    vx_free(text);
}
int vx_exit_status(vx_code code)
{
    return vx_code_exit(code);
}
const char *vx_code_text(vx_code code)
{
    return vx_code_summary(code);
}
const char *vx_code_help(vx_code code)
{
    return vx_code_remedy(code);
}
void vx_abandon_outputs(void)
{
    vx_output_discard_all_on_signal();
}

typedef struct log_target {
    void (*log)(void *user, int level, const char *text);
    void *user;
} log_target;
static log_target target; // beside the log sink of base: the sink is process-wide by design
static void to_callback(void *user, vx_log_level level, const char *text)
{
    const log_target *t = user;
    t->log(t->user, (int)level, text);
}

vx_status vx_context_create(vx_context **out, const vx_context_params *params)
{
    vx_context_params p = { 0 };
    if (params) {
        if (!params->struct_size || params->struct_size > sizeof p)
            return vx_fail(VX_ERR_USAGE, "the context parameters were not initialised with VX_INIT");
        memcpy(&p, params, params->struct_size);
    }
    if (p.threads < 0 || p.threads > 1024)
        return vx_fail_field(VX_ERR_RANGE, "threads", "threads %d is not within 1..1024", p.threads);
    if (p.rank != 0 || p.ranks > 1)
        return vx_fail_field(VX_ERR_UNAVAILABLE, "ranks", "several processes for one job are not supported in this version");
    vx_context *c = vx_alloc_array(1, sizeof *c);
    VX_NEED_MEMORY(c, "a context");
    target = (log_target){ p.log, p.log_user };
    vx_log_set(p.log ? to_callback : NULL, &target);
    vx_status s = vx_device_cpu_create(&c->device, &(vx_cpu_params){ .threads = p.threads, .isa = p.isa });
    if (!s.code) s = vx_device_plan_create(&c->plan, c->device);
    if (s.code) {
        vx_context_destroy(&c);
        return s;
    }
    c->threads = vx_device_threads(c->device);
    *out = c;
    return vx_ok();
}

void vx_context_destroy(vx_context **context)
{
    if (!context || !*context) return;
    vx_device_destroy(&(*context)->plan);
    vx_device_destroy(&(*context)->device);
    vx_free(*context);
    *context = NULL;
}
