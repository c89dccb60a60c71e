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

PKGS   := libuv libcares jansson yaml-0.1 libxxhash zlib libzmq openssl libnghttp2
TPKGS  := cunit
LLHTTP := /usr/share/llhttp
FLOORS := base net index policies adapters sim router

DEPS := $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)) -isystem /usr/share/include/llhttp
LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null) -lpthread -lm
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wpointer-arith -Wundef -Wno-unknown-warning-option -Wno-format-truncation -Wno-string-conversion -Wno-gnu-zero-variadic-macro-arguments $(WERROR)
SAN  := $(SANITIZE:%=-fsanitize=%) $(if $(SANITIZE),-fno-omit-frame-pointer -fno-sanitize-recover=all)
STD  := -std=c11 -D_GNU_SOURCE -DWP_VERSION='"$(VERSION)"' -I. -I$(BUILD)

SRC   := $(filter-out %/main.c,$(foreach f,$(FLOORS),$(wildcard $(f)/*.c $(f)/*/*.c)))
OBJ   := $(SRC:%.c=$(BUILD)/%.o) $(patsubst %,$(BUILD)/llhttp/%.o,api http llhttp)
UNIT  := $(wildcard tests/unit/*.c)
TLIB  := $(wildcard tests/lib/*.c)
FUZZ  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
BENCH := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/*.c))
# nghttp2's limits on resets and CONTINUATION frames came later than the version that pkg-config tells: Debian's 1.52 has them.
$(BUILD)/net/h2.o: CFLAGS += $(shell printf '#include <nghttp2/nghttp2.h>\nint main(void) { nghttp2_option_set_stream_reset_rate_limit(0, 1, 1); nghttp2_option_set_max_continuations(0, 1); }' | \
	$(CC) -x c - -o /dev/null -lnghttp2 2>/dev/null && echo -DWP_NGHTTP2_LIMITS)

# index/ and policies/ decide the same on every machine: no fused multiply-add behind our back
$(BUILD)/index/%.o $(BUILD)/policies/%.o: CFLAGS += -ffp-contract=off

# What runs under a sanitizer stops at the first error and counts leaks.  Suppressions: by library only.
export ASAN_OPTIONS  ?= detect_leaks=1:halt_on_error=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS ?= halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS  ?= halt_on_error=1:second_deadlock_stack=1:suppressions=$(CURDIR)/tests/tsan.supp
# ThreadSanitizer of gcc 12 and clang 14 cannot run where the kernel spreads addresses wider than it knows.
FIXED := $(if $(findstring thread,$(SANITIZE)),$(shell setarch -R true 2>/dev/null && echo setarch -R))

# V=1 shows the whole command lines.
Q      := $(if $(V),,@)
say     = $(if $(V),,@echo '  $(1) $(2)')

PYTHON ?= python3
STEPS  := $(PYTHON) tests/run.py
# Sub-makes run as many jobs as there are processors, unless the caller gave a number.
JOBS    = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
SUB     = $(MAKE) $(JOBS)
MAKEFLAGS += --no-print-directory

.PHONY: all help deps demo demo-up check check-steps check-all check-all-steps test unit small model e2e diff asan tsan race fuzz replay \
        bench soak soak-index soak-router routed reuse bench-index bench-proxy replay-agreement serve-agreement lint cppcheck format real-vllm install uninstall check-install clean tests-built need-deps
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BUILD)/warmpath ## build/warmpath

help: ## this list
	@awk -F ': .*## |: ## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo '  V=1 shows command lines, SUITE="a b" chooses unit suites, SANITIZE=address,undefined or thread a sanitized build in its own folder'

deps: ## install what is missing, through apt-get as root or with sudo (SET=all: for check-all too)
	@sh deploy/deps.sh $(or $(SET),core)

$(BUILD)/warmpath: $(BUILD)/router/main.o $(OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

NEED := $(if $(shell $(PKG_CONFIG) --exists $(PKGS) 2>/dev/null && echo ok),,need-deps)
need-deps:
	@echo "libraries are missing: run make deps" >&2; exit 1

$(BUILD)/%.o: %.c | $(NEED)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(STD) $(DEPS) $(WARN) $(SAN) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/llhttp/%.o: $(LLHTTP)/%.c
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) -std=c11 -DLLHTTP_STRICT_MODE=1 $(DEPS) $(SAN) $(CFLAGS) -w -c -o $@ $<

# Unit tests: every tests/unit/NAME.c exports suite_NAME; the list is made from the file names.
$(BUILD)/suites.h: $(UNIT) Makefile
	@mkdir -p $(@D)
	@{ for s in $(patsubst tests/unit/%.c,%,$(UNIT)); do echo "SUITE($$s)"; done; } >$@
$(BUILD)/tests/lib/unit_main.o: $(BUILD)/suites.h
$(BUILD)/unit: $(patsubst %.c,$(BUILD)/%.o,$(UNIT) $(filter-out tests/lib/replay_main.c,$(TLIB))) $(OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs $(TPKGS)) $(LIBS)

# Fuzz targets, linked with a main that replays their corpus (tests/data/fuzz/NAME/*).
$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/lib/replay_main.o $(OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
replay: $(FUZZ:%=$(BUILD)/fuzz/%) ## every fuzz target over its corpus
	@$(STEPS) $(foreach f,$(FUZZ),'$f=$(FIXED) $(BUILD)/fuzz/$f tests/data/fuzz/$f')

# Against models of another make: tests/diff/NAME.py runs tests/diff/dump_event.
$(BUILD)/tests/diff/dump_event: $(BUILD)/tests/diff/dump_event.o $(BUILD)/tests/lib/event_json.o $(OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
diff: $(BUILD)/tests/diff/dump_event ## the decoder of KV events against its model: N=200000 mutations, SEED=2
	$(FIXED) $(PYTHON) tests/diff/decode.py $< $(if $(N),--n $(N)) $(if $(SEED),--seed $(SEED))

# Requests to an engine and through the router to it; what differs must be in docs/rewrites.md.
routed: $(BUILD)/warmpath ## the same requests directly and through the router: CASES=2000, SEED=1
	$(FIXED) $(PYTHON) tests/diff/routed.py $< --n $(or $(CASES),2000) --seed $(or $(SEED),1)

unit: $(BUILD)/unit ## the unit tests
	$(FIXED) $(BUILD)/unit $(SUITE)

# The index once more, with segments of 4 blocks instead of 128: short random prompts cross many of them.
SMALL := $(wildcard index/*.c base/*.c tests/unit/index*.c) $(addprefix tests/lib/,unit_main.c test.c index_rig.c oracle.c)
$(BUILD)/small/suites.h: $(UNIT) Makefile
	@mkdir -p $(@D)
	@{ for s in $(patsubst tests/unit/%.c,%,$(filter tests/unit/%,$(SMALL))); do echo "SUITE($$s)"; done; } >$@
$(BUILD)/small/tests/lib/unit_main.o: $(BUILD)/small/suites.h
$(BUILD)/small/%.o: %.c | $(NEED)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) -DWP_SEGMENT=4u -DWP_CHUNK=2u -I$(BUILD)/small $(STD) $(DEPS) $(WARN) $(SAN) $(CFLAGS) -ffp-contract=off -MMD -MP -c -o $@ $<
$(BUILD)/small/unit: $(SMALL:%.c=$(BUILD)/small/%.o)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs $(TPKGS)) $(LIBS)
small: $(BUILD)/small/unit ## the index's unit tests with segments so small that short prompts cross many
	$(FIXED) $(BUILD)/small/unit

# The index's own code under all interleavings of short scenarios (tests/model/model.h); then with faults in it, each of which must be found.
# One thread runs it, over memory of its own: sanitizers have nothing to see there.
MODEL_C     := $(wildcard index/*.c tests/model/*.c)
MODEL_OBJ   := $(MODEL_C:%.c=$(BUILD)/model/%.o)
MODEL_BASE  := $(patsubst %,$(BUILD)/base/%.o,err frames map rng str)
MODEL_CC    := $(CC) $(STD) $(DEPS) $(WARN) -Wno-shadow $(CFLAGS) -DWP_SEGMENT=4u -DWP_CHUNK=2u -include tests/model/shim.h
MODEL_WRAP  := $(patsubst %,-Wl$(comma)--wrap=%,wp_epoch_init wp_epoch_enter wp_epoch_retire wp_slab_init sched_yield)
MODEL_LINK  := $(CC) $(CFLAGS) $(LDFLAGS) $(MODEL_WRAP)
$(MODEL_OBJ): $(BUILD)/model/%.o: %.c | $(NEED)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(MODEL_CC) -MMD -MP -c -o $@ $<
$(BUILD)/model/model: $(MODEL_OBJ) $(MODEL_BASE)
	$(call say,LD,$@)
	$(Q)$(MODEL_LINK) -o $@ $^ $(LIBS)
model: $(if $(SANITIZE),,$(BUILD)/model/model) ## all interleavings of one writer and its readers in the index, and the same with planted faults
ifeq ($(SANITIZE),)
	@$(STEPS) 'interleavings=$(BUILD)/model/model' \
	  'planted=$(PYTHON) tests/model/planted.py $(BUILD)/model "$(MODEL_CC) -c" "$(MODEL_OBJ)" "$(MODEL_LINK)" "$(MODEL_BASE) $(LIBS)"'
else
	@$(SUB) SANITIZE= model
endif

E2E := $(wildcard tests/e2e/run.py)
e2e: $(BUILD)/warmpath ## the real binary on loopback: SET=core, slow, clients or all; ONLY=pattern
	$(FIXED) $(PYTHON) tests/e2e/run.py --binary $(BUILD)/warmpath --set $(or $(SET),core) $(if $(ONLY),--only '$(ONLY)')

# A race on purpose: the suite under ThreadSanitizer must be able to fail.
$(BUILD)/race: $(BUILD)/tests/race/planted.o $(OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
race: ## the planted race is reported, and its locked twin is not
ifeq ($(SANITIZE),thread)
race: $(BUILD)/race
	@$(FIXED) sh tests/race/run.sh $(BUILD)/race
else
race:
	@$(SUB) SANITIZE=thread race
endif

lint: ## includes go down the floors, licence lines, no own paths, cppcheck when it is there
	@$(STEPS) 'rules=$(PYTHON) tests/lint/lint.py' 'rules-self-test=$(PYTHON) tests/lint/lint.py --self-test' 'steps=$(PYTHON) tests/lint/steps.py' \
	  'cppcheck=$(MAKE) cppcheck'

# Warnings only: its opinions on style and portability are mostly about what C allows and we mean.
cppcheck:
	@if ! command -v cppcheck >/dev/null; then echo "SKIPPED cppcheck: not installed"; echo "0 passed, 0 failed, 1 skipped"; exit 0; fi; \
	cppcheck -q -j $$(nproc) --std=c11 --error-exitcode=1 --enable=warning --inline-suppr \
	  -I. $(foreach f,$(FLOORS),$(wildcard $f)) 2>&1 && echo "1 passed, 0 failed" || { echo "0 passed, 1 failed"; exit 1; }

format: ## clang-format over our C files
	clang-format -i $(wildcard $(foreach f,$(FLOORS),$f/*.[ch] $f/*/*.[ch]) tests/*/*.[ch] tests/*/*/*.[ch])

# Everything that compiles, without running it.
tests-built: $(BUILD)/warmpath $(BUILD)/unit $(BUILD)/small/unit $(if $(SANITIZE),,$(BUILD)/model/model) $(BUILD)/tests/diff/dump_event $(FUZZ:%=$(BUILD)/fuzz/%) $(BENCH:%=$(BUILD)/bench/%)

RUN = 'unit=$(SUB) unit' 'small=$(SUB) small' $(if $(SANITIZE),,'model=$(SUB) model') 'replay=$(SUB) replay' 'diff=$(SUB) diff' 'routed=$(SUB) routed' 'reuse=$(SUB) reuse' $(if $(E2E),'e2e=$(SUB) e2e SET=core')
test: ## unit tests, replayed corpora and the core end-to-end tests
	@$(STEPS) 'build:first=$(SUB) tests-built' $(RUN)

asan: ## the same under AddressSanitizer (with leaks) and UBSan
	@$(SUB) SANITIZE=address,undefined test
tsan: ## the same under ThreadSanitizer, and the planted race
	@$(STEPS) 'tests=$(SUB) SANITIZE=thread test' 'race=$(SUB) SANITIZE=thread race'

# deps may have to install pkg-config and python3 first, so the steps run in a second make.
check: deps ## what every change must pass: build, lint, unit, replay, core end-to-end; under ten minutes
	@$(MAKE) check-steps
CHECK = 'build:first=$(SUB) tests-built' 'lint=$(MAKE) lint' $(RUN) 'soak=$(SUB) soak-index OPS=1e7'
check-steps:
	@$(STEPS) $(CHECK)

# Outside check: 6 GB of packages into build/real/, two engines of 3 GB, ten to twenty minutes.
real-vllm: $(BUILD)/warmpath ## real vLLM engines on the CPU behind the router: ENGINE=0.32.0, ONLY=pattern, RESUME=1 leaves out what passed
	$(PYTHON) tests/real/vllm.py --binary $(BUILD)/warmpath $(if $(ENGINE),--version $(ENGINE)) $(if $(ONLY),--only '$(ONLY)') $(if $(RESUME),--resume)

DEMO := $(wildcard deploy/demo.sh)
check-all: ## all that CI runs
	@sh deploy/deps.sh all
	@$(MAKE) check-all-steps
check-all-steps:
	@$(STEPS) $(CHECK) \
	  'gcc-werror:plain=$(SUB) CC=gcc WERROR=-Werror BUILD=build/werror-gcc tests-built' \
	  'clang-werror:plain=$(SUB) CC=clang WERROR=-Werror BUILD=build/werror-clang tests-built' \
	  'asan=$(MAKE) asan' 'tsan=$(MAKE) tsan' \
	  'install:plain=$(MAKE) check-install' 'routed-more=$(SUB) routed CASES=10000 SEED=2' \
	  $(if $(E2E),'e2e-slow=$(SUB) e2e SET=slow' 'clients=$(SUB) e2e SET=clients') \
	  $(if $(DEMO),'demo:plain=$(MAKE) demo DEMO_ARGS=smoke')

demo: deps ## four simulated engines and the router: round_robin, then price, side by side (TRACE=file)
	@$(SUB) all
	@sh deploy/demo.sh $(or $(DEMO_ARGS),run)
demo-up: ## the same fleet, left running, with lines to try
	@$(MAKE) demo DEMO_ARGS=up

$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# Long runs: 2 x 10^9 operations, or so many minutes; a short one is among the steps of check.
$(BUILD)/soak/index: $(BUILD)/tests/soak/index.o $(BUILD)/tests/lib/churn.o $(BUILD)/tests/lib/kvbatch.o $(OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/soak/reuse: $(BUILD)/tests/soak/reuse.o $(OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
soak soak-router soak-index: export STEP_LIMIT_S ?= 86400
soak: $(BUILD)/soak/index $(BUILD)/soak/reuse $(BUILD)/warmpath ## the index under churn (OPS=2e9, or MINUTES=N), the reuse race (REQUESTS=1e6), direct against routed (CASES=100000), the router among accidents (SECONDS=1800)
	@$(STEPS) 'soak-index=$(BUILD)/soak/index $(if $(MINUTES),--minutes $(MINUTES),--ops $(or $(OPS),2e9))' $(SOAK_ROUTER)
soak-index: $(BUILD)/soak/index # of these the first
	@$(STEPS) 'soak-index=$(BUILD)/soak/index $(if $(MINUTES),--minutes $(MINUTES),--ops $(or $(OPS),2e9))'
SOAK_SECONDS = $(if $(filter-out file default,$(origin SECONDS)),$(SECONDS),1800)
SOAK_ROUTER  = 'soak-reuse=$(FIXED) $(BUILD)/soak/reuse --router $(BUILD)/warmpath --requests $(or $(REQUESTS),1e6)' \
	  'soak-routed=$(SUB) routed CASES=$(or $(CASES),100000) SEED=$(or $(SEED),9)' \
	  'soak-router=$(FIXED) $(PYTHON) tests/soak/router.py $(BUILD)/warmpath --seconds $(SOAK_SECONDS)'
soak-router: $(BUILD)/soak/reuse $(BUILD)/warmpath ## of these the three that are about the router: REQUESTS=, CASES=, SECONDS=
	@$(STEPS) $(SOAK_ROUTER)
reuse: $(BUILD)/soak/reuse $(BUILD)/warmpath # the short form in check
	$(FIXED) $(BUILD)/soak/reuse --router $(BUILD)/warmpath --requests $(or $(REQUESTS),2e4)

# The benchmark of the index has several files, and peers in another language when PEERS=1 (cargo, crates of its registry).
BENCH_INDEX := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/bench/index/*.c)) $(BUILD)/tests/lib/churn.o $(BUILD)/tests/lib/kvbatch.o
$(BUILD)/bench/index: $(BENCH_INDEX)
# What the first index gave, at the full size (SAVE=file writes such a table).
BEFORE ?= $(if $(QUICK),,tests/bench/index/before.tsv)
BENCH_PEERS := $(BUILD)/peers/release/libwp_bench_peers.so
.PHONY: peers
peers: # cargo knows what is new
	cargo build -q --release --manifest-path tests/bench/peers/Cargo.toml --target-dir $(BUILD)/peers
bench-index: $(BUILD)/bench/index $(if $(PEERS),peers) ## the index beside stand-ins: QUICK=1, PEERS=1 (other projects' crates), BIG=1 (40 M), ROUNDS=5, TRACE=file, OUT=file
	$(BUILD)/bench/index $(if $(QUICK),--quick) $(if $(BIG),--big) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(PEERS),--peers $(BENCH_PEERS)) $(if $(TRACE),--trace $(TRACE)) \
	  $(if $(OUT),--out $(OUT)) $(if $(SAVE),--save $(SAVE)) $(if $(BEFORE),--before $(BEFORE)) $(if $(ONLY),--only $(ONLY)) \
	  --label "$$(date +%F), $$(git describe --always --dirty 2>/dev/null), $(CC) $(CFLAGS)"

replay-agreement: $(BUILD)/warmpath ## replay beside the laboratory's simulator: LAB=its folder, built, with traces/; SEEDS=5, ONLY=regex, AJOBS=1, SAME=1 (one copy, no draws), OWN=1 (arrivals that replay draws)
	@test -n "$(LAB)" || { echo "want LAB=DIR, a folder with kvsim and traces/" >&2; exit 2; }
	$(PYTHON) tests/bench/agreement.py --lab $(LAB) --binary $(BUILD)/warmpath --keep $(BUILD)/agreement --seeds $(or $(SEEDS),5) --jobs $(or $(AJOBS),1) \
	  $(if $(ONLY),--only '$(ONLY)') $(if $(ONLY)$(OWN),,--page docs/replay.md) $(if $(SAME),--workers 4 --copies 1 --jitter 0 --mark same,$(if $(OWN),,--theirs))

serve-agreement: $(BUILD)/warmpath ## serve over sockets beside replay, on a quiet machine: TRACE=file (conversation's), POLICY=a,b SCALES=1,1.309 SPEED=5; the table goes into docs/replay.md
	$(PYTHON) tests/bench/serve_agreement.py --binary $(BUILD)/warmpath --trace $(or $(TRACE),../shared/traces/conversation_trace.jsonl.gz) \
	  $(if $(POLICY),--policy '$(POLICY)') $(if $(SCALES),--scales $(SCALES)) $(if $(SPEED),--speed $(SPEED)) $(if $(POLICY)$(SCALES)$(TRACE),,--page docs/replay.md)

bench-policy: $(BUILD)/warmpath ## the price policy in the laboratory against its goals: LAB=its folder, built, with traces; SEEDS=1,2 FEW=3 ONLY=7,A2 RUNS=1 (at once) OUT=file
	$(PYTHON) tests/bench/policy_lab/main.py $(or $(LAB),$(error LAB is missing: a copy of the laboratory)) $(abspath $(BUILD)/warmpath) --keep $(BUILD)/bench-policy \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FEW),--few $(FEW)) $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--jobs $(RUNS)) $(if $(OUT),--out $(OUT))

bench-proxy: $(BUILD)/warmpath $(BUILD)/bench/null_engine ## the router beside haproxy and nginx over engines that do nothing: ROUNDS=5, SCALE=1, OUT=file
	python3 tests/bench/proxy.py --binary $(BUILD)/warmpath --engine $(BUILD)/bench/null_engine $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SCALE),--scale $(SCALE)) $(if $(OUT),--out $(OUT))

bench: $(BENCH:%=$(BUILD)/bench/%) ## build the benchmarks of tests/bench/ and list them
	@for b in $(BENCH); do echo "$(BUILD)/bench/$$b"; done

# Long fuzzing, clang only: make fuzz TARGET=json SECONDS=60
TARGET  ?= $(FUZZ)
SECONDS ?= 20
fuzz: ## fuzz each target with libFuzzer: TARGET=json SECONDS=60
	@for t in $(TARGET); do \
	  $(MAKE) --no-print-directory CC=$(CLANG) SANITIZE=fuzzer-no-link,address,undefined BUILD=build/fuzz build/fuzz/libfuzzer/$$t && \
	  mkdir -p build/fuzz/corpus/$$t && \
	  build/fuzz/libfuzzer/$$t -max_total_time=$(SECONDS) -timeout=5 -rss_limit_mb=2048 \
	    -artifact_prefix=build/fuzz/corpus/$$t- build/fuzz/corpus/$$t tests/data/fuzz/$$t || exit 1; done
build/fuzz/libfuzzer/%: $(BUILD)/tests/fuzz/%.o $(OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CLANG) -fsanitize=fuzzer,address,undefined $(CFLAGS) -o $@ $^ $(LIBS)

# A sample of the configuration goes beside the real one, which is the operator's.
BINDIR     := $(PREFIX)/bin
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR    ?= $(PREFIX)/lib/systemd/system
MANPAGES   := $(wildcard deploy/*.1 deploy/*.5)
SAMPLE     := $(wildcard deploy/warmpath.yaml)
install: $(BUILD)/warmpath ## binary, man pages, systemd unit and sample configuration, under DESTDIR and PREFIX
	install -D -m 755 $(BUILD)/warmpath $(DESTDIR)$(BINDIR)/warmpath
	$(foreach m,$(MANPAGES),install -D -m 644 $m $(DESTDIR)$(PREFIX)/share/man/man$(patsubst .%,%,$(suffix $m))/$(notdir $m) &&) true
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/warmpath
	sed -e 's,@BINDIR@,$(BINDIR),g' -e 's,@SYSCONFDIR@,$(SYSCONFDIR),g' deploy/warmpath.service >$(DESTDIR)$(UNITDIR)/warmpath.service
	chmod 644 $(DESTDIR)$(UNITDIR)/warmpath.service
	$(if $(SAMPLE),install -m 644 $(SAMPLE) $(DESTDIR)$(SYSCONFDIR)/warmpath/warmpath.yaml.sample)
uninstall: ## removes what install put there
	rm -f $(DESTDIR)$(BINDIR)/warmpath $(DESTDIR)$(UNITDIR)/warmpath.service $(DESTDIR)$(SYSCONFDIR)/warmpath/warmpath.yaml.sample \
	  $(foreach m,$(MANPAGES),$(DESTDIR)$(PREFIX)/share/man/man$(patsubst .%,%,$(suffix $m))/$(notdir $m))
	-rmdir $(DESTDIR)$(SYSCONFDIR)/warmpath
check-install: # into a folder of the build, and away again
	rm -rf $(BUILD)/stage
	$(MAKE) install DESTDIR=$(BUILD)/stage PREFIX=/usr
	$(BUILD)/stage/usr/bin/warmpath version
	! grep -n '@[A-Z]*@' $(BUILD)/stage/usr/lib/systemd/system/warmpath.service
	$(MAKE) uninstall DESTDIR=$(BUILD)/stage PREFIX=/usr
	test -z "$$(find $(BUILD)/stage -type f)"

clean: ## away with build/
	rm -rf build

-include $(OBJ:.o=.d) $(SMALL:%.c=$(BUILD)/small/%.d) $(MODEL_OBJ:.o=.d) $(BUILD)/router/main.d $(patsubst %.c,$(BUILD)/%.d,$(UNIT) $(TLIB) $(wildcard tests/fuzz/*.c tests/bench/*.c tests/bench/index/*.c tests/race/*.c tests/diff/*.c))
