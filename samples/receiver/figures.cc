// SPDX-License-Identifier: Apache-2.0

#include "samples/receiver/figures.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fmt/format.h"

namespace receiver {
namespace {

std::string Microseconds(const Percentiles& times) {
  if (times.count == 0) return "unknown";
  return fmt::format("p50 {:.1f} p99 {:.1f} p99.9 {:.1f} us", times.p50_ns / 1e3,
                     times.p99_ns / 1e3, times.p999_ns / 1e3);
}

// Median and 99th percentile.
std::string Short(const Percentiles& times) {
  if (times.count == 0) return "unknown";
  return fmt::format("{:.0f}/{:.0f}", times.p50_ns / 1e3, times.p99_ns / 1e3);
}

std::string DatagramsLine(const Outcome& outcome) {
  return fmt::format("{}: {} datagrams in {:.1f} s\n", outcome.program,
                     outcome.figures.datagrams, outcome.seconds);
}

std::string MessagesLines(const Outcome& outcome) {
  const Figures& figures = outcome.figures;
  std::string text = fmt::format(
      "{}: {} messages of {} datagrams in {:.1f} s, {} gaps, recovered by line {} by request {} "
      "({} requests, {} again), missing {}\n",
      outcome.program, figures.messages, figures.datagrams, outcome.seconds, figures.gaps,
      figures.recovered_by_line, figures.recovered_by_request, figures.requests, figures.retries,
      figures.missing);
  for (size_t i = 0; i < figures.wins.size(); ++i) {
    text += fmt::format("  line {}: first {} times, lost {} messages\n", "AB"[i], figures.wins[i],
                        figures.lost[i]);
  }
  text += "  from the publisher's send time: " + Microseconds(figures.from_publisher) + "\n";
  text += "  from the device's receive time: " + Microseconds(figures.from_device) + "\n";
  return text;
}

nlohmann::ordered_json ToJson(const Percentiles& times) {
  return {{"count", times.count}, {"p50", times.p50_ns},   {"p90", times.p90_ns},
          {"p99", times.p99_ns},  {"p999", times.p999_ns}, {"most", times.most_ns}};
}

nlohmann::ordered_json ToJson(const Figures& figures) {
  return {{"datagrams", figures.datagrams},
          {"messages", figures.messages},
          {"missing", figures.missing},
          {"gaps", figures.gaps},
          {"recovered_by_line", figures.recovered_by_line},
          {"recovered_by_request", figures.recovered_by_request},
          {"requests", figures.requests},
          {"retries", figures.retries},
          {"refused", figures.refused},
          {"wins", figures.wins},
          {"lost", figures.lost},
          {"receiving_allocations", figures.costs.receiving_allocations},
          {"handling_allocations", figures.costs.handling_allocations},
          {"received_copied_bytes", figures.costs.received_copied_bytes},
          {"held_copied_bytes", figures.held_copied_bytes},
          {"from_publisher_ns", ToJson(figures.from_publisher)},
          {"from_device_ns", ToJson(figures.from_device)}};
}

}  // namespace

Percentiles Summarise(const feed::Histogram& histogram) {
  return {histogram.count(),        histogram.Quantile(0.5),   histogram.Quantile(0.9),
          histogram.Quantile(0.99), histogram.Quantile(0.999), histogram.most()};
}

std::string ProgressLine(double seconds, const Figures& before, const Figures& now) {
  if (now.messages == 0) {
    return fmt::format("{:3.0f} s {:7} datagrams/s\n", seconds, now.datagrams - before.datagrams);
  }
  const std::array<uint64_t, 2> wins = {now.wins[0] - before.wins[0],
                                        now.wins[1] - before.wins[1]};
  const double share = wins[0] + wins[1] == 0 ? 0 : 100.0 * wins[0] / (wins[0] + wins[1]);
  return fmt::format(
      "{:3.0f} s {:7} messages/s {:3} gaps  first A {:.0f} % B {:.0f} %  recovered: line {}, "
      "request {}  us since sent {}, received {}\n",
      seconds, now.messages - before.messages, now.gaps - before.gaps, share,
      wins[0] + wins[1] == 0 ? 0 : 100 - share, now.recovered_by_line - before.recovered_by_line,
      now.recovered_by_request - before.recovered_by_request, Short(now.from_publisher),
      Short(now.from_device));
}

std::string Summary(const Outcome& outcome) {
  const bool counted_only = outcome.figures.messages == 0;
  std::string text = counted_only ? DatagramsLine(outcome) : MessagesLines(outcome);
  for (const std::string& book : outcome.books) text += "  " + book + "\n";
  for (const auto& [name, count] : outcome.counts) text += fmt::format("  {} {}\n", name, count);
  return text + "ended: " + outcome.ended + "\n";
}

std::string WriteJson(const std::string& file, const Outcome& outcome) {
  nlohmann::ordered_json json = ToJson(outcome.figures);
  json["program"] = outcome.program;
  json["ended"] = outcome.ended;
  json["seconds"] = outcome.seconds;
  for (const auto& [name, count] : outcome.counts) json["counts"][name] = count;
  std::ofstream out(file);
  out << json.dump(2) << "\n";
  out.close();
  return out.good() ? "" : fmt::format("write {}: {}", file, strerror(errno));
}

}  // namespace receiver
