// The page: log in, join the parts, and keep the header.

import { Api, isAborted } from "./core/api.js";
import { byId, el, setText, show } from "./core/dom.js";
import { change, isLive, onChange, readAddress, state, VIEWS } from "./core/state.js";
import { count, counted, rate, visible } from "./core/text.js";
import { startTheme } from "./core/theme.js";
import { startKeys } from "./keys.js";
import { Connection } from "./live/connection.js";
import { Feed } from "./live/feed.js";
import { LiveRate } from "./live/live_rate.js";
import { askToLogIn, forget, storedAuthorization } from "./login.js";
import { Timeline } from "./timeline/timeline.js";
import { TopicPane } from "./topic/pane.js";
import { TreePane } from "./tree/pane.js";
import { AccessView } from "./views/access.js";
import { ChartView } from "./views/chart.js";
import { clientsView } from "./views/clients.js";
import { groupsView } from "./views/groups.js";
import { HealthView } from "./views/health.js";
import { sessionsView } from "./views/sessions.js";
import { SqlView } from "./views/sql.js";
import { TablesView } from "./views/tables.js";
import { TailView } from "./views/tail.js";

const STATISTICS_MS = 5000;
const NAMES = { topics: "Topics", clients: "Clients", sessions: "Sessions", groups: "Share groups", tables: "Tables", health: "Health", tail: "Live tail", chart: "Chart", sql: "SQL", access: "Access" };
/** These show single topics, and need no right to see everything. */
const OF_TOPICS = ["topics", "tail", "chart"];
const OF_OPERATORS = ["sql", "access"];

async function logIn(reason) {
  const stored = storedAuthorization();
  const check = async (authorization) => {
    const api = new Api(authorization, () => {});
    return { api, who: await api.get("whoami") };
  };
  if (stored !== null) {
    try {
      return await check(stored);
    } catch (error) {
      if (error.status !== 401) return await askToLogIn(`The server does not answer as expected: ${error.message}.`, check);
      forget();
      reason = EXPIRED;
    }
  }
  return await askToLogIn(reason, check);
}

const EXPIRED = "The login is no longer accepted. Log in again.";

/** The login has expired: ask again, then begin as the address says. */
async function expired(feed) {
  feed.stop();
  forget();
  await logIn(EXPIRED);
  location.reload();
}

/** The views of the whole server. */
function wholeViews(api, who) {
  return {
    clients: clientsView(api, who, byId("view-clients")),
    sessions: sessionsView(api, who, byId("view-sessions")),
    groups: groupsView(api, byId("view-groups")),
    tables: new TablesView(api, who, byId("view-tables")),
    health: new HealthView(api, byId("view-health")),
    ...(who.role === "operator" ? { sql: new SqlView(api, byId("view-sql")), access: new AccessView(api, byId("view-access")) }
      : refused(OF_OPERATORS, "This takes the role operator.")),
  };
}

/** In their place, for a user with rights on some topics. */
function refusedViews() {
  return refused(VIEWS.filter((name) => !OF_TOPICS.includes(name)), "This is shown to users who may see everything; the access list lets you see some topics.");
}

function refused(names, why) {
  for (const name of names) show(byId(`view-${name}`), el("div", { class: "listing-head" }, el("h2", {}, NAMES[name])), el("p", { class: "hint" }, why));
  return Object.fromEntries(names.map((name) => [name, { setShown: () => {} }]));
}

function startViews(api, who) {
  const views = {
    topics: { setShown: () => {} },
    tail: new TailView(api, byId("view-tail")),
    chart: new ChartView(api, byId("view-chart")),
    ...(who.sees_all ? wholeViews(api, who) : refusedViews()),
  };
  const links = VIEWS.map((name) => el("a", { href: `#${name}`, onclick: (event) => {
    event.preventDefault();
    change({ view: name }, { isStep: true });
  } }, NAMES[name]));
  byId("nav").append(...links);
  const showView = () => {
    VIEWS.forEach((name, place) => {
      const isShown = name === state.view;
      byId(`view-${name}`).hidden = !isShown;
      views[name].setShown(isShown);
      if (isShown) links[place].setAttribute("aria-current", "page");
      else links[place].removeAttribute("aria-current");
    });
    document.body.dataset.view = state.view;
  };
  onChange((changed) => changed.has("view") && showView());
  showView();
  return views;
}

/** Alerts are of now; they are said in the past, too. */
function showFiring(number) {
  const link = byId("alerts-firing");
  link.hidden = !number;
  setText(link, number ? counted(number, "alert") : "");
}

function startHeader(api, who) {
  setText(byId("host"), location.host);
  setText(byId("who"), `${visible(who.name)}, ${who.role}`);
  byId("log-out").title = byId("who").textContent; // not every width has room for the name
  byId("alerts-firing").addEventListener("click", (event) => {
    event.preventDefault();
    change({ view: "health" }, { isStep: true });
  });
  byId("log-out").addEventListener("click", () => {
    forget();
    location.reload();
  });
  const load = async () => {
    if (!who.sees_all) return;
    try {
      const found = await api.get("statistics");
      showFiring(found.alerts_firing);
      if (isLive()) {
        setText(byId("fact-clients"), count(found.clients));
        setText(byId("fact-clients-word"), found.clients === 1 ? "client" : "clients");
      }
    } catch (error) {
      if (!isAborted(error) && error.status) setText(byId("fact-clients"), "–");
    }
  };
  const follow = () => {
    byId("facts-now").hidden = !isLive(); // these are of now, and what is shown is not
    load();
  };
  onChange((changed) => changed.has("at") && follow());
  follow();
  setInterval(() => !api.hasEnded && load(), STATISTICS_MS);
}

/** Live messages to the tree and the topic, and how many there are to the header. */
function startFeed(api, connection, tree, topic) {
  const shown = new LiveRate();
  const reload = () => {
    connection.reached();
    tree.reload();
    topic.load();
  };
  const kinds = {
    lost: () => connection.lost(),
    open: reload, // what changed before the stream began is in no event
    refused: reload, // too many pages are open: this one asks instead
    "left-out": reload,
    expired: () => api.get("whoami").catch(() => {}),
    latest: ({ data }) => {
      connection.reached();
      shown.add(data.total);
      tree.take(data.items, data.until, data.left_out);
      topic.take(data.items);
    },
  };
  const feed = new Feed(api.authorization, (told) => kinds[told.kind]?.(told));
  setInterval(() => {
    if (isLive()) setText(byId("fact-rate"), connection.isLost ? "–" : rate(shown.perSecond()));
    tree.tick();
  }, 1000);
  const follow = () => (isLive() ? feed.start() : feed.stop());
  onChange((changed) => changed.has("at") && follow());
  follow();
  return feed;
}

async function start() {
  readAddress();
  startTheme();
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  const { api, who } = await logIn("");
  byId("timeline").hidden = false;
  const timeline = new Timeline(api);
  const tree = new TreePane(api);
  tree.logBegins = () => timeline.range.begins;
  const topic = new TopicPane(api, who, timeline, tree);
  const connection = new Connection({
    onLost: () => timeline.setLost(true),
    onBack: () => {
      timeline.setLost(false);
      tree.reload();
      topic.load();
      timeline.rates.load();
    },
  });
  api.onReached = () => connection.reached();
  api.onLost = () => connection.lost();
  startHeader(api, who);
  const views = startViews(api, who);
  const feed = startFeed(api, connection, tree, topic);
  api.onExpired = () => expired(feed);
  startKeys({
    live: () => timeline.goLive(),
    compare: () => timeline.toggleCompare(),
    play: () => timeline.player.toggle(),
    view: (place) => change({ view: VIEWS[place] }, { isStep: true }),
    back: () => state.topic !== null && change({ topic: null }, { isStep: true }),
  });
  return views;
}

start();
