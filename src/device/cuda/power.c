// Driver, clocks and power of the card as the driver's management library tells them: a number without them is half a number.
#include <dlfcn.h>
#include <stdio.h>

#include "device/cuda/cuda.h"

// Of nvml.h, which not every toolkit brings: the calls and constants that are used here.
typedef struct nvmlDevice *nvml_device;
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
typedef int (*init_fn)(void);
typedef int (*by_bus_fn)(const char *bus, nvml_device *device);
typedef int (*clock_fn)(nvml_device device, int type, unsigned *mhz);
typedef int (*power_fn)(nvml_device device, unsigned *milliwatts);
typedef int (*text_fn)(char *text, unsigned size);

// A function's address comes as an object's: POSIX says that this conversion works.
static void *symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void vx_cuda_power(vx_cuda_info *out, const char *bus)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    union {
        void *p;
        init_fn init;
        by_bus_fn by_bus;
        clock_fn clock;
        power_fn power;
        text_fn text;
    } f;
    nvml_device device = NULL;
    unsigned value = 0;
    f.p = symbol(library, "nvmlInit_v2");
    bool ready = f.p && f.init() == 0;
    char driver[80];
    f.p = symbol(library, "nvmlSystemGetDriverVersion");
    if (ready && f.p && f.text(driver, sizeof driver) == 0) snprintf(out->driver, sizeof out->driver, "%.31s", driver);
    f.p = symbol(library, "nvmlDeviceGetHandleByPciBusId_v2");
    ready = ready && f.p && f.by_bus(bus, &device) == 0;
    f.p = symbol(library, "nvmlDeviceGetClockInfo");
    if (ready && f.p && f.clock(device, NVML_CLOCK_SM, &value) == 0) out->sm_clock = (int)value;
    if (ready && f.p && f.clock(device, NVML_CLOCK_MEM, &value) == 0) out->memory_clock = (int)value;
    f.p = symbol(library, "nvmlDeviceGetPowerUsage");
    if (ready && f.p && f.power(device, &value) == 0) out->power = value / 1000.0;
    f.p = symbol(library, "nvmlDeviceGetEnforcedPowerLimit");
    if (ready && f.p && f.power(device, &value) == 0) out->power_limit = value / 1000.0;
    f.p = symbol(library, "nvmlShutdown");
    if (f.p) (void)f.init();
    dlclose(library);
}
