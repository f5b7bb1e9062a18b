// The whole of the public interface that a program needs: one prompt, one clip.
//   cc generate.c $(pkg-config --cflags --libs vortex) && ./a.out MODEL "A lighthouse at dawn." out.mp4
#include <stdio.h>

#include <vortex/vortex.h>

static void on_log(void *user, int level, const char *text)
{
    (void)user;
    if (level <= 1) fprintf(stderr, "%s\n", text);
}

static void on_progress(void *user, const vx_progress *p)
{
    (void)user;
    fprintf(stderr, "%s %lld/%lld\n", p->stage, (long long)p->step, (long long)p->steps);
}

// Each step needs the one before; the first failure ends it.
static vx_status generate(vx_context *context, vx_model **model, vx_job **job, char **argv)
{
    vx_status s = vx_model_open(context, model, &(vx_model_params){ VX_INIT(vx_model_params), .path = argv[1] });
    if (s.code) return s;
    vx_request request = { VX_INIT(vx_request), .prompt = argv[2], .width = 256,     .height = 256,
                           .num_frames = 124,   .evaluations = 8,  .seed_set = true, .seed = 7 };
    vx_plan plan = { VX_INIT(vx_plan) };
    s = vx_plan_request(*model, &request, &plan); // what it will cost, before anything is computed
    if (s.code) return s;
    fprintf(stderr, "%lld rows, %.1f TFLOP, %.0f MB of memory\n", (long long)plan.rows, plan.flop * 1e-12,
            (double)plan.host_bytes * 1e-6);
    s = vx_job_create(*model, &request, &(vx_job_callbacks){ VX_INIT(vx_job_callbacks), .progress = on_progress }, job);
    if (!s.code) s = vx_job_run(*job);
    if (!s.code) s = vx_job_write_mp4(*job, argv[3], &(vx_media_params){ VX_INIT(vx_media_params), .replace = true });
    return s;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL PROMPT OUT.mp4\n", argv[0]);
        return 2;
    }
    vx_context *context = NULL;
    vx_model *model = NULL;
    vx_job *job = NULL;
    vx_status s = vx_context_create(&context, &(vx_context_params){ VX_INIT(vx_context_params), .log = on_log });
    if (!s.code) s = generate(context, &model, &job, argv);
    if (s.code) fprintf(stderr, "VX-%d: %s. %s\n", (int)s.code, s.message, s.remedy);
    vx_job_destroy(&job);
    vx_model_close(&model);
    vx_context_destroy(&context);
    return vx_exit_status(s.code);
}
