// Files: mapped reads that survive a shrinking file, whole small reads, and outputs that appear complete or not at all.
#ifndef VX_BASE_FILE_H
#define VX_BASE_FILE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A read-only private mapping. When the file shrinks under us, the first touch of a lost page raises SIGBUS; a handler
// (installed with the first mapping, passing on what is not ours) puts zero pages from there to the end and marks the
// mapping, and vx_file_check turns the mark into VX_ERR_FILE_CHANGED: ask it before results made from the bytes are used.
// At most 256 mappings at a time (VX_ERR_FILE_LIMIT). Threads: any; a mapping is unmapped when nobody reads it any more.
typedef struct vx_mapping vx_mapping;

// Regular files only (links are followed); others, and a missing file, fail with `code` and say what was found.
vx_status vx_file_map(vx_mapping **out, const char *path, vx_code code);
void vx_file_unmap(vx_mapping **m);
const uint8_t *vx_mapping_data(const vx_mapping *m);
size_t vx_mapping_size(const vx_mapping *m);
const char *vx_mapping_path(const vx_mapping *m);
vx_status vx_file_check(const vx_mapping *m);
// Read-ahead of a range; a hint.
void vx_mapping_prefetch(const vx_mapping *m, size_t offset, size_t bytes);

// A whole file, terminated with a 0 that is not counted. "-" is standard input; pipes are read to their end. More than
// `limit` bytes: VX_ERR_FILE_LIMIT. Folders, and what cannot be read, fail with `code`. Free with vx_free.
vx_status vx_file_read(char **text, size_t *size, const char *path, size_t limit, vx_code code);
bool vx_file_exists(const char *path);
bool vx_folder_exists(const char *path);
bool vx_same_file(const char *a, const char *b); // both are there, and one: by whatever names and links
// What stands under a name now: another text where another file has taken it, or the file was written to. "" where there is none.
enum { VX_FILE_STATE = 96 };
void vx_file_state(char out[VX_FILE_STATE], const char *path);

// An output under construction: a hidden temporary file beside the final name. Only vx_output_commit gives it its name,
// after fsync of the file, and syncs the folder. Leaving it uncommitted removes it. The process being killed leaves at
// most the temporary file. Without `replace` a file that took the name meanwhile is kept, and the commit fails with
// VX_ERR_OUTPUT_EXISTS; with it, only regular files are replaced (a link's target, not the link), keeping their permissions.
// A commit that fails removes what was written, and *o is NULL in any case. At most 256 outputs at a time.
typedef struct vx_output vx_output;
vx_status vx_output_begin(vx_output **out, const char *path, bool replace); // VX_ERR_OUTPUT_EXISTS unless replace
const char *vx_output_temporary(const vx_output *o);
int vx_output_fd(const vx_output *o);
vx_status vx_output_write(vx_output *o, const void *bytes, size_t size); // handles EINTR and short writes
vx_status vx_output_commit(vx_output **o);
void vx_output_discard(vx_output **o);
// Removes the temporary files of every output now open: for a signal handler's second signal. Async-signal-safe.
void vx_output_discard_all_on_signal(void);

#endif
