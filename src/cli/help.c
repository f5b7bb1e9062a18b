// Help, manual page and completion: all printed from the two tables, so that none can be out of date.
#include <ctype.h>
#include <string.h>

#include "cli/cli.h"

#ifndef VORTEX_COMMIT
#define VORTEX_COMMIT "unknown"
#endif
#ifndef VORTEX_BACK_ENDS
#define VORTEX_BACK_ENDS "cpu"
#endif

void print_version(FILE *to)
{
#if defined(__x86_64__)
    const char *built = "x86_64 (generic, avx2, avx512, avx512bf16)";
#elif defined(__aarch64__)
    const char *built = "aarch64 (generic)";
#else
    const char *built = "generic";
#endif
    fprintf(to, "vortex %s (%s)\nback ends: %s\narchitectures: %s\n", vx_version(), vx_commit(), VORTEX_BACK_ENDS, built);
}

static void overview(FILE *to)
{
    fputs("vortex: video with sound from a prompt (MiniMax H3)\n\nusage: vortex COMMAND [OPTIONS]\n\n", to);
    for (int i = 0; i < command_count; i++) fprintf(to, "  %-11s %s\n", command_table[i].name, command_table[i].help);
    fputs(
        "\nvortex help COMMAND lists a command's options.\n\n  vortex generate -m MODEL -p 'A lighthouse at dawn.' -o out.mp4\n",
        to);
}

static void line(FILE *to, const char *letter, const char *flag, const char *value, const char *help, const char *range,
                 const char *fallback)
{
    char left[80];
    snprintf(left, sizeof left, "%s%s%s%s%s", letter ? letter : "   ", letter ? ", " : " ", flag, value ? " " : "",
             value ? value : "");
    fprintf(to, "  %-44s %s", left, help);
    if (range) fprintf(to, " (%s)", range);
    if (fallback) fprintf(to, " [%s]", fallback);
    fputc('\n', to);
}

// Request options by what they are for; names between spaces. The last section takes what no other names.
typedef struct section {
    const char *title, *fields;
} section;
static const section sections[] = {
    { "every task (t2va needs a prompt alone)", " prompt prompt_embeds task size aspect frames seconds conditions " },
    { "keyframes: i2va (--first), l2va (--last), fl2va (several, any frames)", " first last keyframe " },
    { "references: ref2va (name them in the prompt: <Picture 1>, <Video 1>, <Audio 1>)",
      " ref reference_short_edge canvas_short_edge canvas_max_pixels " },
    { "sampling", " steps num_inference_steps sampler schedule sigmas shift audio_shift seed noise precision outputs " },
    { "results", NULL },
};

static bool listed(const section *s, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    if (s->fields) return strstr(s->fields, word);
    for (const section *other = sections; other->fields; other++)
        if (strstr(other->fields, word)) return false;
    return true;
}

static void print_section(FILE *to, unsigned command_id, const section *s)
{
    const vx_field *f;
    bool titled = false;
    for (int i = 0; (f = vx_field_at(i)); i++) {
        if (!field_of_command(f, command_id) || f->refusal || !listed(s, f->name)) continue;
        if (!titled) fprintf(to, "%s\n", s->title);
        titled = true;
        // The demo model's seed is not a request's, which is drawn where none is given.
        const bool demo_seed = command_id == CMD_DEMO && !strcmp(f->name, "seed");
        line(to, f->letter, f->flag, f->value, f->help, f->range, demo_seed ? "1" : f->fallback);
    }
    if (titled) fputc('\n', to);
}

void print_help(FILE *to, const char *name)
{
    const command *c = NULL;
    for (int i = 0; name && i < command_count; i++)
        if (!strcmp(command_table[i].name, name)) c = &command_table[i];
    if (!c) {
        overview(to);
        return;
    }
    fprintf(to, "usage: vortex %s %s\n%s\n\n", c->name, c->arguments, c->help);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) print_section(to, c->id, &sections[i]);
    fputs("model and machine\n", to);
    for (int i = 0; i < option_count; i++)
        if (option_table[i].commands & c->id)
            line(to, option_table[i].letter, option_table[i].flag, option_table[i].value, option_table[i].help, NULL, NULL);
}

// roff: a leading dot or quote and every minus and backslash are special.
static void roff(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '-') fputs("\\-", to);
        else if (*p == '\\') fputs("\\e", to);
        else if ((*p == '.' || *p == '\'') && p == text) fprintf(to, "\\&%c", *p);
        else fputc(*p, to);
    }
}

static void roff_item(FILE *to, const char *letter, const char *flag, const char *value, const char *help, const char *range,
                      const char *fallback)
{
    fputs(".TP\n\\fB", to);
    if (letter) {
        roff(to, letter);
        fputs("\\fR, \\fB", to);
    }
    roff(to, flag);
    fputs("\\fR", to);
    if (value) {
        fputs(" \\fI", to);
        roff(to, value);
        fputs("\\fR", to);
    }
    fputc('\n', to);
    roff(to, help);
    if (range) {
        fputs(" (", to);
        roff(to, range);
        fputc(')', to);
    }
    if (fallback) {
        fputs(". Default: ", to);
        roff(to, fallback);
    }
    fputs(".\n", to);
}

void print_man(FILE *to)
{
    fprintf(to,
            ".TH VORTEX 1 \"\" \"vortex %s\" \"User Commands\"\n.SH NAME\nvortex \\- video with sound from a prompt, with the "
            "MiniMax H3 model\n.SH SYNOPSIS\n.B vortex\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH COMMANDS\n",
            vx_version());
    for (int i = 0; i < command_count; i++) {
        fprintf(to, ".TP\n\\fB%s\\fR ", command_table[i].name);
        roff(to, command_table[i].arguments);
        fputc('\n', to);
        roff(to, command_table[i].help);
        fputs(".\n", to);
    }
    fputs(".SH REQUEST OPTIONS\nOf \\fBgenerate\\fR and \\fBplan\\fR; the same names, with _ for \\-, are keys of a jobs file "
          "and members of the C interface.\n",
          to);
    const vx_field *f;
    for (int i = 0; (f = vx_field_at(i)); i++)
        if (!f->refusal) roff_item(to, f->letter, f->flag, f->value, f->help, f->range, f->fallback);
    fputs(".SH OTHER OPTIONS\n", to);
    for (int i = 0; i < option_count; i++)
        roff_item(to, option_table[i].letter, option_table[i].flag, option_table[i].value, option_table[i].help, NULL, NULL);
    fputs(".SH RESULT\nWith \\fB\\-\\-json\\fR one object on standard output: output, task, seed, noise, width, height, frames, "
          "fps, seconds, evaluations, sigma_points, sampler, schedule, shift, audio_shift, rows, precision, device, "
          "approximations, timings_s, step_s, reused (what was found from requests before), peak_bytes, latents_sha256, model, "
          "warnings; with adapters also adapters (what was matched, at which scale) and turbo (its list). An error is "
          "{\\(dqerror\\(dq: {code, message, remedy, field}}. timings_s are seconds of wall time, stage by stage. Frames are "
          "encoded while the next ones are decoded: mux is what encoding took beyond that, with finishing the file and reading "
          "it back. load is what opening the model's files took so far, for all requests; total leaves it out, as it is part "
          "of plan or came before.\n"
          ".SH EXIT STATUS\n0 done; 1 a fault of Vortex; 2 usage or request; 3 model files; 4 storage or output; 5 memory; 6 "
          "device; 7 input media; 130 cancelled.\n"
          ".SH ENVIRONMENT\n.TP\n\\fBVORTEX_MODEL\\fR\nThe model when \\fB\\-\\-model\\fR is not "
          "given.\n.TP\n\\fBVORTEX_MEDIA\\fR\nPath of the media module, where it is not beside the program.\n"
          ".SH SEE ALSO\ndocs/errors.md, docs/numerics.md\n",
          to);
}

void print_completion(FILE *to)
{
    fputs("# bash completion for vortex\n_vortex() {\n    local cur=${COMP_WORDS[COMP_CWORD]} words\n    if [ \"$COMP_CWORD\" "
          "-eq 1 ]; then\n        COMPREPLY=($(compgen -W \"",
          to);
    for (int i = 0; i < command_count; i++) fprintf(to, "%s ", command_table[i].name);
    fputs("\" -- \"$cur\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n", to);
    for (int c = 0; c < command_count; c++) {
        fprintf(to, "    %s) words=\"", command_table[c].name);
        const vx_field *f;
        for (int i = 0; (f = vx_field_at(i)); i++)
            if (field_of_command(f, command_table[c].id) && !f->refusal) fprintf(to, "%s ", f->flag);
        for (int i = 0; i < option_count; i++)
            if (option_table[i].commands & command_table[c].id) fprintf(to, "%s ", option_table[i].flag);
        fputs("\" ;;\n", to);
    }
    fputs("    esac\n    case $cur in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n    *) COMPREPLY=($(compgen "
          "-f -- \"$cur\")) ;;\n    esac\n}\ncomplete -o filenames -F _vortex vortex\n",
          to);
}
