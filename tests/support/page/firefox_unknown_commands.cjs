// Playwright sets media features with a command of WebDriver BiDi that Firefox 153 does not know yet, also where none is
// wanted, and then opens no page. Here it asks for the session's status instead: pages have the features of the system.
const Module = require("module");

const compile = Module.prototype._compile;
Module.prototype._compile = function (text, file) {
  const known = file.endsWith("coreBundle.js")
    ? text.replaceAll('send("emulation.setMediaFeaturesOverride", {', 'send("session.status", {}); void ({')
    : text;
  return compile.call(this, known, file);
};
