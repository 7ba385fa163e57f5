// The micro-benchmarks on libfibre's fibres, as micro/cases has them for the other systems. One case a run; prints a
// figure a line: metric, value. Its own semaphore and mutex wherever threads wait. libfibre has another licence (GPL 3):
// nothing of it is here, and this is linked with it only where somebody measures it.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "libfibre/fibre.h"

using Clock = std::chrono::steady_clock;

static std::string name;
static size_t workers = 1, threads = 100, rings = 100, spots = 50, words = 2, writes = 2;
// Operations of each fibre, in place of a time.
static uint64_t goal = 0;
static double seconds = 0.3;
static bool parking = false, share = false, migrations = false;

static std::atomic<bool> stop{false};
// Fibres that have not done their iterations yet.
static std::atomic<size_t> unfinished{0};
static Clock::time_point started, stopped;

static double nanoseconds() { return std::chrono::duration<double, std::nano>(stopped - started).count(); }

// One place in a row of places that are hot on their own.
template <typename T> struct alignas(128) Padded {
  T value;
};

template <typename T> using Row = std::unique_ptr<Padded<T>[]>;
template <typename T> static Row<T> row(size_t n) { return Row<T>(new Padded<T>[n]()); }

class Random {
  uint64_t state;

public:
  explicit Random(size_t seed) : state((seed + 1) * 0x9E3779B97F4A7C15u | 1) {}
  size_t below(size_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return ((state >> 32) * n) >> 32;
  }
};

// Ends a run by iterations.
static void finish() {
  stopped = Clock::now();
  stop.store(true);
}

// Says whether a fibre with this count does another operation; it asks once for each.
static bool goes(uint64_t n) {
  if (n == goal && goal > 0 && unfinished.fetch_sub(1) == 1) finish();
  return !stop.load(std::memory_order_relaxed);
}

// The kernel's thread ends the measurement: a fibre that sleeps would have to wait for its turn.
static std::thread alarm() {
  started = Clock::now();
  if (goal > 0) return std::thread();
  return std::thread([] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stopped = Clock::now();
    stop.store(true);
  });
}

struct Body {
  virtual void run(size_t i, uint64_t& n) = 0;
  // Wakes whoever still waits when the time is over.
  virtual void sweep() {}
  virtual ~Body() {}
};

struct Task {
  Body* body;
  size_t i;
  uint64_t n;
  std::atomic<size_t>* left;
  FredSemaphore* ended;
};

static void start(Task* task) {
  task->body->run(task->i, task->n);
  task->left->fetch_sub(1);
  task->ended->V();
}

// Counts of n fibres that ran until the time was over.
static std::vector<uint64_t> run(size_t n, Body& body) {
  std::atomic<size_t> left{n};
  unfinished.store(n);
  FredSemaphore ended;
  Row<Task> tasks = row<Task>(n);
  std::vector<Fibre*> fibres;
  std::thread clock = alarm();
  for (size_t i = 0; i < n; i++) {
    tasks[i].value = Task{&body, i, 0, &left, &ended};
    fibres.push_back((new Fibre)->run(start, &tasks[i].value));
  }
  ended.P();
  while (left.load() > 0) {
    body.sweep();
    Fibre::yield();
  }
  std::vector<uint64_t> counts;
  for (size_t i = 0; i < n; i++) {
    delete fibres[i];
    counts.push_back(tasks[i].value.n);
  }
  if (clock.joinable()) clock.join();
  return counts;
}

static void report(const std::vector<uint64_t>& counts) {
  double sum = 0, squares = 0, least = double(counts[0]), most = 0;
  for (uint64_t count : counts) {
    double n = double(count);
    sum += n;
    squares += n * n;
    if (n < least) least = n;
    if (n > most) most = n;
  }
  printf("ns_per_op %g\nops %g\n", nanoseconds() / sum, sum);
  printf("jain %g\nmax_over_min %g\n", sum * sum / (double(counts.size()) * squares), most / (least < 1 ? 1 : least));
}

// Its counting semaphore with the fewest locks; where several may release at once it needs one.
using Seat = FredBenaphore<LimitedSemaphore0<>>;
using Place = FredBenaphore<LimitedSemaphore0<MCSLock>>;

struct Yield : Body {
  void run(size_t, uint64_t& n) override {
    while (goes(n)) {
      Fibre::yield();
      n++;
    }
  }
};

struct Cycle : Body {
  Row<Seat> seats = row<Seat>(threads * rings);
  Cycle() {
    for (size_t ring = 0; ring < rings; ring++) seats[ring * threads].value.V();
  }
  void run(size_t i, uint64_t& n) override {
    Seat &mine = seats[i].value, &next = seats[i / threads * threads + (i + 1) % threads].value;
    for (bool more = true; more;) {
      mine.P();
      n++;
      more = goes(n);
      next.V();
    }
  }
};

struct Churn : Body {
  Row<Place> places = row<Place>(spots);
  void run(size_t i, uint64_t& n) override {
    Random random(i);
    if (i < spots) places[i].value.P();
    while (goes(n)) {
      Place& place = places[random.below(spots)].value;
      place.V();
      place.P();
      n++;
    }
  }
  void sweep() override {
    for (size_t i = 0; i < spots; i++) places[i].value.V();
  }
};

// Returns a number, from 1, for the kernel's thread that runs the caller. Not inlined: the address of a thread-local
// must not be kept while a fibre moves.
__attribute__((noinline)) static size_t worker() {
  static std::atomic<size_t> known{0};
  static thread_local size_t number = 0;
  if (number == 0) number = known.fetch_add(1) + 1;
  return number;
}

struct Locality : Body {
  // Words on a line of their own, and lines of an array.
  static const size_t LINE = 16;
  size_t each = (words + LINE - 1) / LINE;
  Row<std::atomic<size_t>> places = row<std::atomic<size_t>>(spots);
  Row<Seat> seats = row<Seat>(threads);
  Row<uint64_t[LINE]> lines = row<uint64_t[LINE]>(threads * each);
  Row<size_t> handed = row<size_t>(threads);
  Row<size_t> writers = row<size_t>(threads);
  std::atomic<uint64_t> all{0}, all_moved{0}, all_fetched{0};
  void run(size_t i, uint64_t& n) override {
    Random random(i);
    size_t mine = i, here = migrations ? worker() : 0;
    uint64_t moved = 0, fetched = 0;
    while (goes(n)) {
      if (migrations) {
        size_t& last = writers[mine].value;
        if (last != 0 && last != here) fetched++;
        last = here;
      }
      for (size_t k = 0; k < writes; k++) {
        size_t word = random.below(words);
        lines[mine * each + word / LINE].value[word % LINE]++;
      }
      size_t other = places[random.below(spots)].value.exchange(i + 1);
      if (other != 0) {
        handed[other - 1].value = mine;
        seats[other - 1].value.V();
      }
      seats[i].value.P();
      if (share && !stop.load(std::memory_order_relaxed)) mine = handed[i].value;
      if (migrations) {
        size_t now = worker();
        if (now != here) moved++;
        here = now;
      }
      n++;
    }
    all.fetch_add(n);
    all_moved.fetch_add(moved);
    all_fetched.fetch_add(fetched);
  }
  void sweep() override {
    for (size_t i = 0; i < spots; i++) {
      size_t other = places[i].value.exchange(0);
      if (other != 0) seats[other - 1].value.V();
    }
  }
};

struct Transfer : Body {
  Row<Place> seats = row<Place>(threads);
  Row<std::atomic<uint64_t>> seen = row<std::atomic<uint64_t>>(threads);
  std::atomic<uint64_t> epoch{0}, leader{0};
  std::atomic<bool> starved{false};
  void wake(size_t i) {
    if (parking) seats[i].value.V();
  }
  void run(size_t i, uint64_t& n) override {
    Random random(i);
    while (!stop.load()) {
      if (leader.load() != i) {
        seen[i].value.store(epoch.load());
        if (parking) {
          seats[i].value.P();
        } else {
          Fibre::yield();
        }
        continue;
      }
      uint64_t now = epoch.fetch_add(1) + 1;
      seen[i].value.store(now);
      for (size_t k = 0; k < threads; k++) {
        if (k != i) wake(k);
      }
      Clock::time_point began = Clock::now();
      for (size_t k = 0; k < threads && !starved.load();) {
        if (seen[k].value.load() == now) {
          k++;
        } else if (Clock::now() - began > std::chrono::seconds(5)) {
          starved.store(true);
          stop.store(true);
        }
      }
      if (!starved.load()) n++;
      if (goal > 0 && (now == goal || starved.load())) finish();
      size_t next = random.below(threads);
      leader.store(next);
      wake(next);
    }
  }
  void sweep() override {
    for (size_t i = 0; i < threads; i++) wake(i);
  }
};

static void transfer() {
  Transfer body;
  uint64_t total = 0;
  for (uint64_t count : run(threads, body)) total += count;
  if (body.starved.load()) {
    printf("starved 1\n");
  } else {
    printf("us_per_transfer %g\nstarved 0\n", nanoseconds() / 1000 / double(total));
  }
}

static void locality() {
  Locality body;
  std::vector<uint64_t> counts = run(threads, body);
  if (!migrations) return report(counts);
  double ops = double(body.all.load());
  printf("thread_migrations_per_op %g\n", double(body.all_moved.load()) / ops);
  printf("data_migrations_per_op %g\n", double(body.all_fetched.load()) / ops);
}

static void nothing() {}

static void spawn_join(size_t batch) {
  std::vector<Fibre*> fibres(batch);
  uint64_t n = 0;
  std::thread clock = alarm();
  while (!stop.load() && (goal == 0 || n < goal)) {
    if (goal > 0 && goal - n < batch) fibres.resize(batch = goal - n);
    for (Fibre*& fibre : fibres) fibre = (new Fibre)->run(nothing);
    for (Fibre* fibre : fibres) delete fibre;
    n += batch;
  }
  // A batch takes long beside the time: it counts to its end.
  stopped = Clock::now();
  if (clock.joinable()) clock.join();
  printf("ns_per_op %g\nops %llu\n", nanoseconds() / double(n), (unsigned long long)n);
}

// A channel with room for one.
class Channel {
  Seat room{1}, full{0};
  size_t value = 0;

public:
  void send(size_t v) {
    room.P();
    value = v;
    full.V();
  }
  size_t receive() {
    full.P();
    size_t v = value;
    room.V();
    return v;
  }
};

static Channel there, back;
static const size_t END = SIZE_MAX;

static void echo() {
  for (size_t v = there.receive(); v != END; v = there.receive()) back.send(v);
}

static void ping_pong() {
  Fibre* other = (new Fibre)->run(echo);
  size_t n = 0;
  std::thread clock = alarm();
  while (!stop.load(std::memory_order_relaxed) && (goal == 0 || n < goal)) {
    there.send(n);
    if (back.receive() != n) abort();
    n++;
  }
  there.send(END);
  if (goal > 0) finish();
  delete other;
  if (clock.joinable()) clock.join();
  printf("ns_per_op %g\nops %zu\n", nanoseconds() / double(n), n);
}

struct Mutex : Body {
  FredMutex lock;
  uint64_t total = 0;
  void run(size_t, uint64_t& n) override {
    while (goes(n)) {
      lock.acquire();
      total++;
      lock.release();
      Fibre::yield();
      n++;
    }
  }
};

template <typename B> static void measure(size_t n) {
  B body;
  report(run(n, body));
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    std::string flag = argv[i];
    size_t equals = flag.find('=');
    std::string key = flag.substr(0, equals), value = equals == std::string::npos ? "" : flag.substr(equals + 1);
    if (key == "-case") name = value;
    else if (key == "-workers") workers = strtoul(value.c_str(), nullptr, 10);
    else if (key == "-threads") threads = strtoul(value.c_str(), nullptr, 10);
    else if (key == "-rings") rings = strtoul(value.c_str(), nullptr, 10);
    else if (key == "-words") words = strtoul(value.c_str(), nullptr, 10);
    else if (key == "-writes") writes = strtoul(value.c_str(), nullptr, 10);
    else if (key == "-migrations") migrations = value == "true";
    else if (key == "-iterations") goal = strtoull(value.c_str(), nullptr, 10);
    else if (key == "-spots") spots = strtoul(value.c_str(), nullptr, 10);
    else if (key == "-seconds") seconds = strtod(value.c_str(), nullptr);
    else if (key == "-parking") parking = value == "true";
    else if (key == "-share") share = value == "true";
    else {
      fprintf(stderr, "no flag is called '%s'\n", flag.c_str());
      return 2;
    }
  }
  FibreInit(1, workers);
  if (name == "yield") measure<Yield>(threads);
  else if (name == "cycle") measure<Cycle>(threads * rings);
  else if (name == "churn") measure<Churn>(threads);
  else if (name == "locality") locality();
  else if (name == "transfer") transfer();
  else if (name == "spawn-join") spawn_join(1000);
  else if (name == "spawn-join-1") spawn_join(1);
  else if (name == "ping-pong") ping_pong();
  else if (name == "mutex") measure<Mutex>(threads);
  else {
    fprintf(stderr, "no case is called '%s'\n", name.c_str());
    return 2;
  }
  // Its workers and their poller know no end.
  fflush(stdout);
  _Exit(0);
}
