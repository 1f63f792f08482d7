// Payloads: text, JSON, or bytes.

import { h } from './dom.js';

// Bytes of a payload that are shown.
const SHOWN_MAX = 65_536;
const HEX_MAX = 4_096;

// Levels of JSON up to which it is indented: the indentation grows with their square.
const NESTING_MAX = 64;

const utf8 = new TextDecoder('utf-8', { fatal: true });

// Bytes of a message of the HTTP interface.
export function payloadOf(message) {
  if (message.payload_base64) return Uint8Array.from(atob(message.payload_base64), (char) => char.charCodeAt(0));
  return new TextEncoder().encode(message.payload ?? '');
}

// The text that the beginning of a payload is, or null.
export function textOf(data, most = data.length) {
  // A character that is cut off has at most three bytes here.
  const ends = data.length > most ? [0, 1, 2, 3] : [0];
  for (const less of ends) {
    try {
      const text = utf8.decode(data.subarray(0, Math.min(most, data.length) - less));
      return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
    } catch {
      // Try with less.
    }
  }
  return null;
}

function hex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_MAX); at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const chars = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${at.toString(16).padStart(4, '0')}  ${digits.padEnd(47)}  ${chars}`);
  }
  if (data.length > HEX_MAX) lines.push('…');
  return lines.join('\n');
}

// One line of a payload.
export function brief(data, chars = 80) {
  const text = textOf(data, chars * 4);
  if (text === null) return `${data.length} bytes`;
  const line = text.replace(/\s+/g, ' ');
  return line.length > chars ? `${line.slice(0, chars)}…` : line;
}

// At least as many levels as a JSON text has.
function nesting(text) {
  let depth = 0;
  let most = 0;
  for (const char of text.replace(/"(?:[^"\\]|\\.)*"/g, '')) {
    if (char === '{' || char === '[') most = Math.max(most, (depth += 1));
    else if (char === '}' || char === ']') depth -= 1;
  }
  return most;
}

// A payload as it is read best.
export function payloadView(data) {
  if (data.length === 0) return h('p', { class: 'dim' }, 'The payload is empty.');
  let text = textOf(data, SHOWN_MAX);
  if (text === null) return h('pre', { class: 'payload', tabindex: 0 }, hex(data));
  if (/^\s*[{[]/.test(text) && nesting(text) <= NESTING_MAX) {
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // Not JSON after all.
    }
  }
  return h('pre', { class: 'payload', tabindex: 0 }, text, data.length > SHOWN_MAX && '…');
}
