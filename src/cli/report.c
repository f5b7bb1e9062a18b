// What people and scripts see: errors, messages, progress, results.
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

int report_error(const options *o, vx_status s)
{
    bool dot = s.message[0] && s.message[strlen(s.message) - 1] == '.';
    fprintf(stderr, "vortex: error VX-%04d: %s%s%s%s\n", (int)s.code, s.message, dot ? "" : ".", s.remedy[0] ? " " : "",
            s.remedy);
    if (o->json) {
        char code[16];
        snprintf(code, sizeof code, "VX-%04d", (int)s.code);
        json_t *e = json_pack("{s:{s:s, s:s, s:s, s:s}}", "error", "code", code, "message", s.message, "remedy", s.remedy,
                              "field", s.field);
        if (e) json_dumpf(e, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(e);
    }
    return vx_exit_status(s.code);
}

void on_log(void *user, int level, const char *text)
{
    const options *o = user;
    static const char *const names[] = { "error", "warning", "note", "detail" };
    if (o->log) {
        char when[32];
        time_t now = time(NULL);
        struct tm tm;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
        fprintf(o->log, "%s %s %s\n", when, names[level], text);
        fflush(o->log);
    }
    if (level > (o->verbose ? 3 : 1) || o->quiet) return;
    fprintf(stderr, "%svortex: %s: %s\n", o->progress_mode == PROGRESS_BAR ? "\r\033[K" : "", names[level], text);
}

static void bar(const vx_progress *p)
{
    enum { CELLS = 10 };
    char cells[CELLS * 3 + 1] = "";
    int64_t full = p->steps ? p->step * CELLS / p->steps : 0;
    for (int i = 0; i < CELLS; i++) strcat(cells, i < full ? "█" : "░");
    fprintf(stderr, "\r\033[K[%d/%d] %s  %s  %lld/%lld", p->stage_index + 1, p->stage_count, p->stage, cells, (long long)p->step,
            (long long)p->steps);
    if (p->step && p->rate_s >= 0.1) fprintf(stderr, "  %.1f s/it", p->rate_s);
    else if (p->step) fprintf(stderr, "  %.0f ms/it", p->rate_s * 1e3);
    if (p->step && p->step < p->steps) fprintf(stderr, "  %.0f s left", ceil(p->eta_s));
    fflush(stderr);
}

// Once a second, and at the end of a stage.
static bool worth_a_line(const vx_progress *p)
{
    static double last;
    static char stage[32];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    bool changed = strcmp(stage, p->stage);
    if (!changed && p->step < p->steps && now - last < 1) return false;
    snprintf(stage, sizeof stage, "%s", p->stage);
    last = now;
    return p->step > 0 || changed;
}

void on_progress(void *user, const vx_progress *p)
{
    options *o = user;
    if (o->quiet && o->progress_mode == PROGRESS_AUTO) return;
    if (o->progress_mode == PROGRESS_AUTO) o->progress_mode = isatty(STDERR_FILENO) ? PROGRESS_BAR : PROGRESS_PLAIN;
    if (o->progress_mode == PROGRESS_JSON)
        fprintf(stderr, "{\"stage\":\"%s\",\"step\":%lld,\"steps\":%lld,\"elapsed_s\":%.3f,\"eta_s\":%.3f}\n", p->stage,
                (long long)p->step, (long long)p->steps, p->elapsed_s, p->eta_s < 0 ? 0 : p->eta_s);
    else if (o->progress_mode == PROGRESS_BAR) bar(p);
    else if (o->progress_mode == PROGRESS_PLAIN && worth_a_line(p))
        fprintf(stderr, "[%d/%d] %s %lld/%lld, %.1f s\n", p->stage_index + 1, p->stage_count, p->stage, (long long)p->step,
                (long long)p->steps, p->elapsed_s);
}

void progress_end(options *o)
{
    if (o->progress_mode == PROGRESS_BAR) fputs("\r\033[K", stderr);
}

static void scalar(FILE *to, const json_t *v)
{
    if (json_is_string(v)) fputs(json_string_value(v), to);
    else if (json_is_integer(v)) fprintf(to, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v)) fprintf(to, "%.6g", json_real_value(v));
    else fputs(json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-", to);
}

static bool flat(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (json_is_object(json_array_get(array, i)) || json_is_array(json_array_get(array, i))) return false;
    return true;
}

// JSON for people: one member a line, nested ones indented.
void print_tree(FILE *to, const json_t *value, int indent)
{
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)value, key, member)
    {
        fprintf(to, "%*s%s:", indent, "", key);
        if (json_is_object(member)) {
            fputc('\n', to);
            print_tree(to, member, indent + 2);
        } else if (json_is_array(member) && flat(member)) {
            for (size_t i = 0; i < json_array_size(member); i++) {
                fputc(i ? ',' : ' ', to);
                if (i) fputc(' ', to);
                scalar(to, json_array_get(member, i));
            }
            fputs(json_array_size(member) ? "\n" : " none\n", to);
        } else if (json_is_array(member)) {
            fputc('\n', to);
            for (size_t i = 0; i < json_array_size(member); i++) {
                fprintf(to, "%*s-\n", indent + 2, "");
                print_tree(to, json_array_get(member, i), indent + 4);
            }
        } else {
            fputc(' ', to);
            scalar(to, member);
            fputc('\n', to);
        }
    }
}

void print_json(const options *o, const char *json)
{
    json_t *v = o->json ? NULL : json_loads(json, 0, NULL);
    if (v) print_tree(stdout, v, 0);
    else puts(json);
    json_decref(v);
}
