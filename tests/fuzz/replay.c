// Feeds files, and the files of folders, to a fuzz target once: a test of what fuzzing found, with any compiler.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        fprintf(stderr, "cannot read %s\n", path);
        if (f) fclose(f);
        return -1;
    }
    long size = ftell(f);
    // Of the exact size, so that a sanitizer sees a read beyond the end.
    uint8_t *bytes = malloc(size > 0 ? (size_t)size : 1);
    rewind(f);
    int result = bytes && size >= 0 && fread(bytes, 1, (size_t)size, f) == (size_t)size ? 1 : -1;
    fclose(f);
    if (result > 0) {
        fprintf(stderr, "%s\n", path); // before the run: the last line names the culprit
        LLVMFuzzerTestOneInput(bytes, (size_t)size);
    }
    free(bytes);
    return result;
}

static int replay(const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode)) return replay_file(path);
    DIR *dir = opendir(path);
    if (!dir) return -1;
    int count = 0;
    for (struct dirent *e; count >= 0 && (e = readdir(dir));) {
        char inside[4096];
        if (e->d_name[0] == '.' || snprintf(inside, sizeof inside, "%s/%s", path, e->d_name) >= (int)sizeof inside) continue;
        int n = replay(inside);
        count = n < 0 ? -1 : count + n;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int count = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0) return 1;
        count += n;
    }
    printf("%d inputs\n", count);
    return count == 0; // an empty corpus is a wrong path
}
