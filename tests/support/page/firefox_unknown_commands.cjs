// What Playwright expects of WebDriver BiDi and Firefox 153 does not do yet.
const Module = require("module");

const REPLACED = [
  // It sets media features, also where none is wanted, and would then open no page. Here it asks for the session's
  // status instead: pages have the features of the system.
  ['send("emulation.setMediaFeaturesOverride", {', 'send("session.status", {}); void ({'],
  // A file that a page has made itself is saved without an identifier of the download: its URL is one.
  ["if (!event.download && !event.navigation)", "if (!event.url)"],
  ["event.download ?? event.navigation", "event.download ?? event.navigation ?? event.url"],
];

const compile = Module.prototype._compile;
Module.prototype._compile = function (text, file) {
  let known = text;
  if (file.endsWith("coreBundle.js")) for (const [old, given] of REPLACED) known = known.replaceAll(old, given);
  return compile.call(this, known, file);
};
