# SPDX-License-Identifier: Apache-2.0
# Warmpath.  `make` builds build/warmpath; `make help` lists the rest.  CC, CFLAGS, LDFLAGS, PREFIX, DESTDIR are yours.

VERSION    := 0.1.0
CC         ?= cc
CLANG      ?= clang
PKG_CONFIG ?= pkg-config
PREFIX     ?= /usr/local
CFLAGS     ?= -O2 -g
SANITIZE   ?=
BUILD      ?= build$(if $(SANITIZE),/$(subst $(comma),-,$(SANITIZE)))
comma      := ,

PKGS   := libuv libcares jansson yaml-0.1 libxxhash zlib
TPKGS  := cunit
LLHTTP := /usr/share/llhttp
FLOORS := base net index policies adapters sim router

DEPS := $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)) -isystem /usr/share/include/llhttp
LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null) -lpthread -lm
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wpointer-arith -Wundef -Wno-unknown-warning-option -Wno-format-truncation -Wno-gnu-zero-variadic-macro-arguments $(WERROR)
SAN  := $(SANITIZE:%=-fsanitize=%) $(if $(SANITIZE),-fno-omit-frame-pointer -fno-sanitize-recover=all)
STD  := -std=c11 -D_GNU_SOURCE -DWP_VERSION='"$(VERSION)"' -I. -I$(BUILD)

SRC   := $(filter-out %/main.c,$(foreach f,$(FLOORS),$(wildcard $(f)/*.c $(f)/*/*.c)))
OBJ   := $(SRC:%.c=$(BUILD)/%.o) $(patsubst %,$(BUILD)/llhttp/%.o,api http llhttp)
UNIT  := $(wildcard tests/unit/*.c)
TLIB  := $(wildcard tests/lib/*.c)
FUZZ  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
BENCH := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/*.c))
# index/ and policies/ decide the same on every machine: no fused multiply-add behind our back
$(BUILD)/index/%.o $(BUILD)/policies/%.o: CFLAGS += -ffp-contract=off

.PHONY: all help deps demo demo-up check check-all test unit e2e asan tsan fuzz replay bench lint format install clean
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BUILD)/warmpath

$(BUILD)/warmpath: $(BUILD)/router/main.o $(OBJ)
	$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(STD) $(DEPS) $(WARN) $(SAN) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/llhttp/%.o: $(LLHTTP)/%.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -DLLHTTP_STRICT_MODE=1 $(DEPS) $(SAN) $(CFLAGS) -w -c -o $@ $<

# Unit tests: every tests/unit/NAME.c exports suite_NAME; the list is made from the file names.
$(BUILD)/suites.h: $(UNIT) Makefile
	@mkdir -p $(@D)
	@{ for s in $(patsubst tests/unit/%.c,%,$(UNIT)); do echo "SUITE($$s)"; done; } >$@
$(BUILD)/tests/lib/unit_main.o: $(BUILD)/suites.h
$(BUILD)/unit: $(patsubst %.c,$(BUILD)/%.o,$(UNIT) $(filter-out tests/lib/replay_main.c,$(TLIB))) $(OBJ)
	$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs $(TPKGS)) $(LIBS)

# Fuzz targets, linked with a main that replays their corpus (tests/data/fuzz/NAME/*).
$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/lib/replay_main.o $(OBJ)
	@mkdir -p $(@D)
	$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
replay: $(FUZZ:%=$(BUILD)/fuzz/%)
	@for f in $(FUZZ); do $(BUILD)/fuzz/$$f $$(find tests/data/fuzz/$$f -type f | sort) || exit 1; done

unit: $(BUILD)/unit
	$(BUILD)/unit $(SUITE)

$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(OBJ)
	@mkdir -p $(@D)
	$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# Long fuzzing, clang only: make fuzz TARGET=json SECONDS=60
TARGET  ?= $(FUZZ)
SECONDS ?= 20
fuzz:
	@for t in $(TARGET); do \
	  $(MAKE) --no-print-directory CC=$(CLANG) SANITIZE=fuzzer-no-link,address,undefined BUILD=build/fuzz build/fuzz/libfuzzer/$$t && \
	  mkdir -p build/fuzz/corpus/$$t && \
	  build/fuzz/libfuzzer/$$t -max_total_time=$(SECONDS) -timeout=5 -rss_limit_mb=2048 build/fuzz/corpus/$$t tests/data/fuzz/$$t || exit 1; done
build/fuzz/libfuzzer/%: $(BUILD)/tests/fuzz/%.o $(OBJ)
	@mkdir -p $(@D)
	$(CLANG) -fsanitize=fuzzer,address,undefined $(CFLAGS) -o $@ $^ $(LIBS)

clean:
	rm -rf build

-include $(OBJ:.o=.d) $(BUILD)/router/main.d $(patsubst %.c,$(BUILD)/%.d,$(UNIT) $(TLIB) $(wildcard tests/fuzz/*.c tests/bench/*.c))
