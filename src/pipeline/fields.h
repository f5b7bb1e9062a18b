// The one table of request fields: command line, job files and (later) HTTP forms read it; help and man page print it.
#ifndef VX_PIPELINE_FIELDS_H
#define VX_PIPELINE_FIELDS_H

#include "vortex/vortex.h"

// How a field's value is stored in its struct.
typedef enum vx_store {
    VX_STORE_NONE,
    VX_STORE_TEXT,
    VX_STORE_INT,
    VX_STORE_I64,
    VX_STORE_SEED,
    VX_STORE_FLOAT,
    VX_STORE_DOUBLE,
    VX_STORE_BOOL,
    VX_STORE_CRF,
    VX_STORE_BITRATE,
    VX_STORE_SIZE,
    VX_STORE_SIGMAS,
    VX_STORE_LORA,
    VX_STORE_LORA_ALPHA,
    VX_STORE_FIRST,
    VX_STORE_LAST,
    VX_STORE_KEYFRAME,
    VX_STORE_REFERENCE,
    VX_STORE_CONDITIONS
} vx_store;
typedef struct vx_field_entry {
    vx_field field;
    vx_store store;
    size_t offset; // in the struct of field.group
    double lo, hi; // numbers
} vx_field_entry;

extern const vx_field_entry vx_field_table[];
extern const int vx_field_count;
const vx_field_entry *vx_field_find(const char *name); // '-' and '_' alike, aliases too; NULL if unknown

#endif
