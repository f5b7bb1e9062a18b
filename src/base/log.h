// Messages for people. The sink is the one global of the library; nothing below the command line prints by itself.
#ifndef VX_BASE_LOG_H
#define VX_BASE_LOG_H

#include "base/status.h"

typedef enum vx_log_level { VX_LOG_ERROR, VX_LOG_WARNING, VX_LOG_INFO, VX_LOG_DEBUG } vx_log_level;
typedef void (*vx_log_fn)(void *user, vx_log_level level, const char *text);

void vx_log_set(vx_log_fn fn, void *user); // NULL: silent. Call before threads start.
void vx_log(vx_log_level level, const char *format, ...) VX_PRINTF(2, 3);

#endif
