# Two commands for a newcomer: `make demo` makes a clip, `make check` passes the tests. Both install what is missing first.
# The build itself is CMake's (CMakePresets.json); this file only strings the usual steps together.
JOBS ?= $(shell nproc)
BUILD := build/release
VORTEX := $(BUILD)/vortex
CTEST := ctest --output-on-failure --no-tests=error
# Tests that need the reference's data read it from here; see golden below.
GOLDEN_DATA ?= $(CURDIR)/build/golden

.PHONY: all build demo check check-gpu test sanitize threads lint fuzz fuzz-build golden bench install clean
all: build

build:
	@tools/install-dependencies
	@cmake --preset release -G Ninja -DVORTEX_TESTS=OFF >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

demo: build
	@echo "writing a small checkpoint (constructed weights, no training) to demo-model/"
	@$(VORTEX) demo-model demo-model -y -q
	@echo "generating 5 seconds of video with sound from a prompt"
	@$(VORTEX) generate -m demo-model $(DEMO_CLIP) -o demo.mp4
	@echo "the same once more, beginning with examples/keyframe.png"
	@$(VORTEX) generate -m demo-model $(DEMO_CLIP) -o demo-keyframe.mp4 --first examples/keyframe.png
	@echo "made demo.mp4 and demo-keyframe.mp4: open them in any player; $(VORTEX) inspect demo.mp4 prints how it was made"
DEMO_CLIP := --size 256x256 --frames 124 --steps 8 --seed 7 -y -p 'A lighthouse at dawn. "Hold the line," she says.'

# Everything that needs no GPU: the tests (parity once more with newer instruction sets masked off), sanitizers, lint, fuzz
# corpora, and parity with the reference where its data is at hand.
check:
	@tools/install-dependencies --check
	@$(MAKE) --no-print-directory lint test sanitize threads fuzz-corpora golden
	@echo "make check: all passed"

test:
	@cmake --preset release -G Ninja -DVORTEX_TESTS=ON >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@cd $(BUILD) && $(CTEST) -j $(JOBS)

sanitize:
	@cmake --preset debug -G Ninja >/dev/null
	@cmake --build build/debug -j $(JOBS)
	@cd build/debug && $(CTEST) -j $(JOBS) -LE slow

# Data races: the rooms that have threads.
threads:
	@cmake --preset tsan -G Ninja -DVORTEX_MEDIA=OFF >/dev/null
	@cmake --build build/tsan -j $(JOBS) --target vx_device $(TSAN_TARGETS)
	@cd build/tsan && $(CTEST) -R '$(TSAN_TESTS)'
TSAN_TARGETS := test_base_pool test_base_handoff test_pipeline_decode test_device_linear test_device_attention
TSAN_TESTS := ^(base/test_(pool|handoff)|pipeline/test_decode|device/test_(linear|attention))$$

# The CUDA back end beside the CPU's, parity on the card, its benches: tools/check-gpu says what it reads of the environment. Needs
# nvcc, CMake and a driver; of the small libraries what VORTEX_PREFIX has (tools/make-prefix), else the system's. Without a card it
# says that it skips; CUDA_ARCHITECTURES=90a builds all the same.
check-gpu:
	@VORTEX_PREFIX="$(VORTEX_PREFIX)" CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)" VORTEX_GOLDEN="$(VORTEX_GOLDEN)" \
	    GOLDEN_DATA="$(GOLDEN_DATA)" tools/check-gpu $(JOBS)

lint:
	@tools/lint

.PHONY: fuzz-corpora
fuzz-corpora:
	@cmake --preset fuzz -G Ninja >/dev/null
	@cmake --build build/fuzz -j $(JOBS) --target fuzz_all
	@tools/fuzz build/fuzz 0

# 60 seconds for each target.
fuzz:
	@tools/install-dependencies --check
	@cmake --preset fuzz -G Ninja >/dev/null
	@cmake --build build/fuzz -j $(JOBS) --target fuzz_all
	@tools/fuzz build/fuzz 60

# VORTEX_GOLDEN is the folder with the reference's data and its acceptance scripts.
golden:
	@tools/golden "$(VORTEX_GOLDEN)" $(VORTEX) "$(GOLDEN_DATA)"

install: build
	@cmake --install $(BUILD)

clean:
	@rm -rf build demo-model demo.mp4 demo-keyframe.mp4
