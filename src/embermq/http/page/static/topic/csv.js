// Retained messages as CSV (RFC 4180), and back. What a spreadsheet would take for a formula gets an apostrophe in front.

const COLUMNS = ["topic", "timestamp", "qos", "client_id", "payload", "payload_base64", "properties_base64"];
const FORMULA = /^'*[=+\-@\t\r]/;
const ESCAPED = /^'+[=+\-@\t\r]/;
const NUMBER = /^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** Rows of objects as CSV; without names, those of a retained message. */
export function writeCsv(rows, columns = COLUMNS) {
  const line = (values) => values.map(cell).join(",");
  return `${[line(columns), ...rows.map((row) => line(columns.map((name) => row[name] ?? "")))].join("\r\n")}\r\n`;
}

function cell(value) {
  let text = String(value);
  if (FORMULA.test(text) && !NUMBER.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The rows of a CSV file as objects, by the names in its first line. */
export function readCsv(text) {
  const rows = [];
  let row = [];
  let field = "";
  let isQuoted = false;
  for (let place = 0; place < text.length; place += 1) {
    const character = text[place];
    if (isQuoted) {
      if (character !== '"') field += character;
      else if (text[place + 1] === '"') {
        field += '"';
        place += 1;
      } else isQuoted = false;
    } else if (character === '"') isQuoted = true;
    else if (character === ",") {
      row.push(field);
      field = "";
    } else if (character === "\n") {
      row.push(field.replace(/\r$/, ""));
      rows.push(row);
      row = [];
      field = "";
    } else field += character;
  }
  if (field || row.length) rows.push([...row, field]);
  const [names, ...values] = rows;
  if (!names?.includes("topic")) throw new Error("the first line has no column named topic");
  return values.map((one) => Object.fromEntries(names.map((name, place) => [name, unescaped(one[place] ?? "")])));
}

function unescaped(text) {
  return ESCAPED.test(text) ? text.slice(1) : text;
}
