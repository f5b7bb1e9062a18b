// Machines with cards, without, and with a card that cannot be used: what "auto" takes and says, and what the doctor sees. The
// CUDA back end is the test's own and stands in the place of the library's.
#include <jansson.h>

#include "base/log.h"
#include "pipeline/internal.h"
#include "testing.h"

static struct {
    bool built;
    vx_cuda_info info;
    vx_status opens, opens_cudnn; // what making a device answers: plainly, and with cuDNN demanded
    vx_status found;
} machine;

bool vx_cuda_built(void)
{
    return machine.built;
}

vx_status vx_cuda_query(vx_cuda_info *out, int ordinal)
{
    *out = machine.info;
    out->ordinal = ordinal;
    if (ordinal) snprintf(out->name, sizeof out->name, "card %d", ordinal);
    return machine.found;
}

vx_status vx_device_cuda_create(vx_device **out, const vx_cuda_params *params)
{
    *out = NULL;
    VX_TRY(params->attention == VX_ATTENTION_CUDNN ? machine.opens_cudnn : machine.opens);
    return vx_device_cpu_create(out, &(vx_cpu_params){ .threads = 1 });
}

const char *vx_cuda_attention_used(const vx_device *dev)
{
    (void)dev;
    return "";
}

static void good_machine(void)
{
    machine.built = true;
    machine.info = (vx_cuda_info){ .name = "H200",
                                   .driver = "580.65.06",
                                   .driver_cuda = "13.0",
                                   .runtime = "13.0",
                                   .cublas = "13.1.0",
                                   .cudnn = "9.19",
                                   .devices = 1,
                                   .sm = 90,
                                   .memory_total = (uint64_t)141 << 30,
                                   .memory_free = (uint64_t)140 << 30 };
    machine.opens = machine.opens_cudnn = machine.found = vx_ok();
}

static void no_card(void)
{
    good_machine();
    machine.info = (vx_cuda_info){ .driver_cuda = "13.0", .runtime = "13.0" };
    machine.found = machine.opens = machine.opens_cudnn =
        vx_fail_remedy(VX_ERR_DEVICE_NONE, "use --device cpu", "no CUDA device was found");
}

static void old_driver(void)
{
    no_card();
    snprintf(machine.info.driver_cuda, sizeof machine.info.driver_cuda, "11.4");
    machine.found = machine.opens = machine.opens_cudnn =
        vx_fail_remedy(VX_ERR_DEVICE_NONE, "install NVIDIA's driver", "no CUDA driver that this build can use");
}

static void no_cuda(void)
{
    no_card();
    machine.built = false;
    machine.info = (vx_cuda_info){ 0 };
    machine.found = machine.opens = machine.opens_cudnn = vx_fail(VX_ERR_DEVICE_NONE, "this build has no CUDA back end");
}

static void no_cublas(void)
{
    good_machine();
    machine.info.cublas[0] = 0;
    machine.opens = machine.opens_cudnn =
        vx_fail_remedy(VX_ERR_DEVICE_NONE, "install CUDA's cuBLAS", "libcublasLt was not found");
}

static void no_cudnn(void)
{
    good_machine();
    machine.info.cudnn[0] = 0;
    machine.opens_cudnn = vx_fail_remedy(VX_ERR_UNSUPPORTED, "name the folder of libcudnn.so.9", "libcudnn.so.9 was not found");
}

static void full_card(void)
{
    good_machine();
    machine.opens = machine.opens_cudnn = vx_fail(VX_ERR_MEMORY, "CUDA device: out of memory");
}

// ---- what "auto" takes ----
typedef struct heard {
    int count;
    int level;
    char text[1024];
} heard;

static void hear(void *user, int level, const char *text)
{
    heard *h = user;
    h->count++;
    h->level = level;
    snprintf(h->text, sizeof h->text, "%s", text);
}

enum { SILENT = -1 };
static const struct {
    const char *says;
    void (*machine)(void);
    const char *device, *attention;
    bool no_graphs, gpu; // gpu: the CUDA device is taken
    int level;           // of the message, SILENT: none
    vx_code code;
    const char *field, *told; // of the error, and what it or the message holds
} cases[] = {
    { "takes the card", good_machine, NULL, NULL, false, true, SILENT, VX_OK, "", "" },
    { "takes it with its options", good_machine, "auto", "cudnn", true, true, SILENT, VX_OK, "", "" },
    { "takes it without cuDNN", no_cudnn, "auto", NULL, false, true, SILENT, VX_OK, "", "" },
    { "is quiet without a card", no_card, "auto", NULL, false, false, VX_LOG_INFO, VX_OK, "", "no CUDA device" },
    { "is silent without CUDA", no_cuda, "auto", NULL, false, false, SILENT, VX_OK, "", "" },
    { "warns of a card without cuBLASLt", no_cublas, "auto", NULL, false, false, VX_LOG_WARNING, VX_OK, "",
      "libcublasLt was not found; install CUDA's cuBLAS" },
    { "warns of a full card", full_card, "auto", "own", false, false, VX_LOG_WARNING, VX_OK, "", "out of memory" },
    { "warns of an old driver", old_driver, "auto", NULL, false, false, VX_LOG_WARNING, VX_OK, "", "driver" },
    { "says what cuDNN misses", no_cudnn, "auto", "cudnn", false, false, SILENT, VX_ERR_UNSUPPORTED, "attention",
      "libcudnn.so.9 was not found" },
    { "says what graphs miss", full_card, "auto", NULL, true, false, SILENT, VX_ERR_MEMORY, "no_graphs", "out of memory" },
    { "says that cuDNN misses a card", no_card, "auto", "cudnn", false, false, SILENT, VX_ERR_DEVICE_NONE, "attention",
      "needs a GPU: no CUDA device" },
    { "says that graphs miss CUDA", no_cuda, "auto", NULL, true, false, SILENT, VX_ERR_DEVICE_NONE, "no_graphs",
      "only a GPU has graphs: this build" },
    { "has no graphs where told to take the processor", good_machine, "cpu", NULL, true, false, SILENT, VX_ERR_DEVICE_NONE,
      "no_graphs", "only a GPU has graphs: this runs on the processor" },
    { "insists on a card by name", no_cublas, "cuda", NULL, false, false, SILENT, VX_ERR_DEVICE_NONE, "device",
      "device cuda: libcublasLt" },
};

static void automatic_takes_the_card_or_says_why_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        heard h = { .level = SILENT };
        vx_context *context;
        vx_device *device = NULL, *planner = NULL;
        cases[i].machine();
        assert_ok(vx_context_create(&context, &(vx_context_params){ VX_INIT(vx_context_params), .log = hear, .log_user = &h }));
        vx_status s = vx_open_device(context, cases[i].device, cases[i].attention, cases[i].no_graphs, &device, &planner);
        const bool gpu = !s.code && device != context->device;
        if (s.code != cases[i].code || strcmp(s.field, cases[i].field) || h.level != cases[i].level || gpu != cases[i].gpu ||
            !strstr(s.code ? s.message : h.text, cases[i].told))
            fail_msg("%s: VX-%d of '%s', '%s'; level %d, '%s'; %s", cases[i].says, (int)s.code, s.field, s.message, h.level,
                     h.text, gpu ? "the card" : "the processor");
        if (gpu) {
            vx_device_destroy(&planner);
            vx_device_destroy(&device);
        }
        vx_context_destroy(&context);
    }
}

// ---- the doctor ----
static json_t *examine(void)
{
    vx_context *context;
    char *text = NULL;
    assert_ok(vx_context_create(&context, &(vx_context_params){ VX_INIT(vx_context_params), .threads = 1 }));
    assert_ok(vx_doctor(context, &text));
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    vx_text_free(text);
    vx_context_destroy(&context);
    return o;
}

// The remedy of the one problem that names `what`; NULL where there is none.
static const char *remedy_of(const json_t *report, const char *what)
{
    const char *remedy = NULL;
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(report, "problems"), i, p)
    {
        if (!strstr(json_string_value(json_object_get(p, "problem")), what)) continue;
        assert_null(remedy);
        remedy = json_string_value(json_object_get(p, "remedy"));
    }
    return remedy;
}

static void the_doctor_names_each_missing_library(void **state)
{
    (void)state;
    static void (*const machines[])(void) = { good_machine, no_cublas, no_cudnn };
    for (int i = 0; i < 3; i++) {
        machines[i]();
        json_t *o = examine();
        const char *cublas = remedy_of(o, "cuBLASLt"), *cudnn = remedy_of(o, "cuDNN");
        assert_int_equal(cublas != NULL, i == 1);
        assert_int_equal(cudnn != NULL, i == 2);
        if (cublas) assert_non_null(strstr(cublas, "VORTEX_LIBRARY_PATH"));
        assert_int_equal(json_array_size(json_object_get(o, "notes")), 0);
        json_decref(o);
    }
}

static void the_doctor_names_every_card(void **state)
{
    (void)state;
    good_machine();
    machine.info.devices = 2;
    json_t *o = examine(), *cuda = json_object_get(o, "cuda"), *cards = json_object_get(cuda, "cards");
    assert_int_equal(json_array_size(cards), 2);
    static const char *const names[] = { "H200", "card 1" }, *const devices[] = { "cuda:0", "cuda:1" };
    for (size_t i = 0; i < 2; i++) {
        const json_t *c = json_array_get(cards, i);
        assert_string_equal(json_string_value(json_object_get(c, "name")), names[i]);
        assert_string_equal(json_string_value(json_object_get(c, "device")), devices[i]);
        assert_int_equal(json_integer_value(json_object_get(c, "compute_capability")), 90);
        assert_int_equal(json_integer_value(json_object_get(c, "memory_bytes")), (int64_t)141 << 30);
    }
    assert_string_equal(json_string_value(json_object_get(cuda, "name")), "H200");
    json_decref(o);
}

static void a_build_without_cuda_is_no_problem_but_says_what_it_costs(void **state)
{
    (void)state;
    good_machine();
    json_t *with = examine();
    no_cuda();
    json_t *o = examine(), *notes = json_object_get(o, "notes");
    assert_string_equal(json_string_value(json_object_get(o, "cuda")), "not in this build");
    assert_int_equal(json_array_size(notes), 1);
    assert_non_null(strstr(json_string_value(json_array_get(notes, 0)), "--preset cuda"));
    assert_int_equal(json_array_size(json_object_get(o, "problems")), json_array_size(json_object_get(with, "problems")));
    json_decref(with);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(automatic_takes_the_card_or_says_why_not),
        cmocka_unit_test(the_doctor_names_each_missing_library),
        cmocka_unit_test(the_doctor_names_every_card),
        cmocka_unit_test(a_build_without_cuda_is_no_problem_but_says_what_it_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
