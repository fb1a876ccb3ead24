// Health: the alerts, the nodes of a cluster, the bridges, the server's numbers of the last hour as small plots, and what was dropped and why.

import { isAborted } from "../core/api.js";
import { el, show } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { plot, shownNumber } from "../core/plot.js";
import { count, counted, longDuration, microseconds, rate, size, visible } from "../core/text.js";
import { alertsPart } from "./alerts.js";
import { bridgesPart } from "./bridges.js";
import { nowNote } from "./listing.js";
import { nodesPart } from "./nodes.js";
import { refreshWhileShown } from "./refresh.js";

const REFRESH_MS = 10_000;
const DROPPED = "publish/messages/dropped/";

/** Which numbers of a sample make one plot. */
const PLOTS = [
  { title: "Messages", unit: "per second", of: [["in", "received_rate"], ["out", "sent_rate"]], format: rate },
  { title: "Time to be durable", unit: "milliseconds", of: [["p99", "commit_p99_ms"], ["p50", "commit_p50_ms"]], format: rate },
  { title: "Waiting for clients", unit: "messages", of: [["owed", "queued"]], format: count },
  { title: "Dropped", unit: "messages", of: [["dropped", "dropped_sum"]], format: count },
  { title: "Clients", unit: "connected", of: [["clients", "connections"]], format: count },
  { title: "Memory", unit: "of the process", of: [["memory", "memory_bytes"]], format: size },
  { title: "Log", unit: "on disk", of: [["log", "log_bytes"]], format: size },
  { title: "Disk", unit: "free", of: [["free", "disk_free_bytes"]], format: size },
];

export class HealthView {
  #api;

  constructor(api, element) {
    this.#api = api;
    this.element = element;
    this.body = el("div");
    show(element, el("div", { class: "listing-head" }, el("h2", {}, "Health")), nowNote(), this.body);
    this.load = oneAtATime(() => this.#load());
    this.setShown = refreshWhileShown(this.load, REFRESH_MS);
  }

  async #load() {
    try {
      const [statistics, history, alerts, nodes, bridges] = await Promise.all([
        this.#api.get("statistics"), this.#api.get("statistics/history", { minutes: 60 }), this.#api.get("alerts"), this.#api.get("nodes"), this.#api.get("bridges"),
      ]);
      this.#draw(statistics, history, alerts.items, nodes.items, bridges.items);
    } catch (error) {
      if (!isAborted(error)) show(this.body, el("p", { class: "failure" }, error.message));
    }
  }

  #draw(statistics, history, alerts, nodes, bridges) {
    const isOk = statistics.store_state === "ok";
    const samples = history.items.map((item) => ({ ...item, dropped_sum: Object.values(item.dropped ?? {}).reduce((a, b) => a + b, 0) }));
    show(
      this.body,
      el("p", { class: "explanation" }, isOk ? el("strong", { class: "there" }, "Everything is made durable. ") : el("strong", { class: "warning" }, `Nothing can be made durable: ${visible(statistics.store_state)}. `),
        `Version ${statistics.version}, up for ${longDuration(statistics.uptime_s * 1000)}, ${counted(statistics.retained_count, "retained message")} (${size(statistics.retained_bytes)}), log of ${size(statistics.log.bytes)} in ${counted(statistics.log.segments, "file")}.`),
      alertsPart(alerts),
      nodesPart(nodes),
      bridgesPart(bridges),
      el("div", { class: "cards plots" }, PLOTS.map((one) => panel(one, samples))),
      drops(statistics.counters),
    );
  }
}

function panel({ title, unit, of, format }, samples) {
  const series = of.map(([name, field], place) => ({
    name,
    className: place ? "second" : "",
    points: samples.filter((sample) => typeof sample[field] === "number").map((sample) => [microseconds(sample.timestamp), sample[field]]),
  }));
  const last = series.map((one) => one.points.at(-1)?.[1]);
  return el(
    "section",
    { class: "card" },
    el("h3", {}, title, el("span", { class: "unit" }, ` ${unit}`)),
    el("p", { class: "big" }, series.map((one, place) => [
      place > 0 && " ",
      last[place] === undefined ? "–" : format(last[place]),
      series.length > 1 && el("span", { class: `legend ${one.className}` }, ` ${one.name}`),
    ]).flat()),
    plot({ series, format, label: `${title} ${unit}`, isFromZero: true, height: 72 }),
  );
}

function drops(counters) {
  const found = Object.entries(counters).filter(([name, value]) => name.startsWith(DROPPED) && value > 0);
  const reasons = found.map(([name, value]) => [name.slice(DROPPED.length).replaceAll("-", " "), value]).sort((a, b) => b[1] - a[1]);
  return el(
    "section",
    { class: "drops" },
    el("h3", {}, "Dropped since the start, by reason"),
    reasons.length
      ? el("dl", { class: "bars" }, reasons.map(([reason, value]) => [el("dt", {}, reason), bar(value, reasons[0][1])]).flat())
      : el("p", { class: "hint" }, "No message was dropped."),
    reasons.length > 0 && el("p", { class: "hint" }, "For whom: sort the view Sessions by Dropped. Who is slow now: the view Clients."),
  );
}

function bar(value, most) {
  const cell = el("dd", {}, el("i"), el("span", {}, shownNumber(value)));
  cell.firstChild.style.width = `${(value / most) * 70}%`;
  return cell;
}
