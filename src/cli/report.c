// What people and scripts see: errors, messages, progress, results.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

// Length of the well-formed UTF-8 sequence at s; 0 if there is none (the reference is table 3-7 of the Unicode standard).
static size_t sequence(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0; // a terminator ends it, too
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

static bool is_control(const unsigned char *s)
{
    return s[0] < 0x20 || s[0] == 0x7F || (s[0] == 0xC2 && s[1] < 0xA0);
}

// Names come from files and arguments: bytes that are not UTF-8 would break the JSON, control characters the terminal and
// the promise of one line.
static void clean_into(char *to, const char *text, bool visible)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t n = sequence(s);
        if (n && !(visible && is_control(s))) {
            memcpy(to, s, n);
            to += n;
        } else if (*s == '\n') {
            to += sprintf(to, "\\n");
        } else {
            to += sprintf(to, "\\x%02x", n == 2 ? s[1] : s[0]);
        }
        s += n ? n : 1;
    }
    *to = 0;
}

char *clean_text(const char *text, bool visible)
{
    char *out = malloc(4 * strlen(text) + 1);
    if (out) clean_into(out, text, visible);
    return out;
}

static json_t *clean_json(const char *text)
{
    char *clean = clean_text(text, false);
    json_t *v = json_string(clean ? clean : "");
    free(clean);
    return v;
}

json_t *error_json(const vx_status *s)
{
    char code[16];
    snprintf(code, sizeof code, "VX-%04d", (int)s->code);
    return json_pack("{s:s, s:o, s:o, s:o}", "code", code, "message", clean_json(s->message), "remedy", clean_json(s->remedy),
                     "field", clean_json(s->field));
}

// No allocation: the error may be that there is no memory.
void print_error(const char *where, const vx_status *s)
{
    char message[4 * sizeof s->message], remedy[4 * sizeof s->remedy];
    clean_into(message, s->message, true);
    clean_into(remedy, s->remedy, true);
    size_t size = strlen(message);
    bool dot = size && message[size - 1] == '.';
    fprintf(stderr, "vortex: error VX-%04d: %s%s%s%s%s\n", (int)s->code, where, message, dot ? "" : ".", *remedy ? " " : "",
            remedy);
}

static int stdout_error; // errno of the first failed write of a result

void put_line(const char *line)
{
    if (puts(line) != EOF && fflush(stdout) == 0) return;
    if (!stdout_error) stdout_error = errno ? errno : EIO;
}

void put_json(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text) put_line(text);
    free(text);
}

vx_status check_stdout(void)
{
    if (fflush(stdout) != 0 && !stdout_error) stdout_error = errno ? errno : EIO;
    if (ferror(stdout) && !stdout_error) {
        // A longer text went out on the way and nobody kept its errno: the same place says again why it takes no more.
        clearerr(stdout);
        stdout_error = putchar('\n') == EOF || fflush(stdout) != 0 ? errno : EIO;
    }
    if (!stdout_error) return (vx_status){ 0 };
    return usage_error(stdout_error == ENOSPC ? VX_ERR_STORAGE_FULL : VX_ERR_OUTPUT, "", "standard output: %s",
                       strerror(stdout_error));
}

int report_error(const options *o, vx_status s)
{
    print_error("", &s);
    json_t *json = o->json ? json_pack("{s:o}", "error", error_json(&s)) : NULL;
    if (json) put_json(json);
    else if (o->json)
        printf("{\"error\":{\"code\":\"VX-%04d\",\"message\":\"%s\",\"remedy\":\"%s\",\"field\":\"\"}}\n", (int)s.code,
               vx_code_text(s.code), vx_code_help(s.code));
    return vx_exit_status(s.code);
}

void on_log(void *user, int level, const char *text)
{
    const options *o = user;
    static const char *const names[] = { "error", "warning", "note", "detail" };
    bool shown = level <= (o->verbose ? 3 : 1) && !o->quiet;
    char *clean = o->log || shown ? clean_text(text, true) : NULL;
    if (!clean) return;
    if (o->log) {
        char when[32];
        time_t now = time(NULL);
        struct tm tm;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
        fprintf(o->log, "%s %s %s\n", when, names[level], clean);
        fflush(o->log);
    }
    if (shown) fprintf(stderr, "%svortex: %s: %s\n", o->progress_mode == PROGRESS_BAR ? "\r\033[K" : "", names[level], clean);
    free(clean);
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
    if (json_is_string(v)) {
        char *clean = clean_text(json_string_value(v), true);
        if (clean) fputs(clean, to);
        free(clean);
    } else if (json_is_integer(v)) fprintf(to, "%lld", (long long)json_integer_value(v));
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
        char *name = clean_text(key, true);
        fprintf(to, "%*s%s:", indent, "", name ? name : "");
        free(name);
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
    else put_line(json);
    json_decref(v);
}
