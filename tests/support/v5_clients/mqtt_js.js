'use strict'
// MQTT.js clients for tests: one JSON command a line on the input, one JSON event a line on the output.
// Bytes are written as Node writes a Buffer: {"type": "Buffer", "data": [1, 2]}.

const mqtt = require('mqtt')
const readline = require('node:readline')

const clients = new Map()

function say (client, event, fields) {
  process.stdout.write(JSON.stringify({ client, event, ...fields }) + '\n')
}

function open (name, { url, options }) {
  const client = mqtt.connect(url, { ...options, protocolVersion: 5, reconnectPeriod: 0 })
  clients.set(name, client)
  client.on('connect', packet => say(name, 'connack', { packet }))
  client.on('error', error => say(name, 'error', { code: error.code ?? 0, text: error.message }))
  client.on('disconnect', packet => say(name, 'disconnect', { code: packet.reasonCode }))
  client.on('close', () => say(name, 'close', {}))
  client.on('message', (topic, payload, packet) =>
    say(name, 'message', { topic, payload, qos: packet.qos, retain: packet.retain, properties: packet.properties }))
  client.on('packetreceive', packet => {
    if (packet.cmd === 'puback') say(name, 'code', { code: packet.reasonCode ?? 0 })
    if (packet.cmd === 'suback' || packet.cmd === 'unsuback') say(name, 'code', { code: packet.granted[0] })
  })
  // The test answers a challenge with the command `auth`; the last AUTH of a new authentication needs no answer.
  client.handleAuth = (packet, callback) => {
    say(name, 'auth', { code: packet.reasonCode, data: packet.properties.authenticationData })
    if (packet.reasonCode === 24) client.answerAuth = callback
    else callback()
  }
}

const COMMANDS = {
  open,
  subscribe: (name, { filter, options }) => clients.get(name).subscribe(filter, options, () => {}),
  unsubscribe: (name, { filter }) => clients.get(name).unsubscribe(filter, () => {}),
  publish: (name, { topic, payload, options }) => clients.get(name).publish(topic, payload, options, () => {}),
  auth: (name, { packet }) => clients.get(name).answerAuth(null, packet),
  reauthenticate: (name, { packet }) => clients.get(name)._sendPacket(packet),
  end: (name, { options }) => clients.get(name).end(false, options, () => say(name, 'ended', {})),
  vanish: name => clients.get(name).stream.destroy()
}

readline.createInterface({ input: process.stdin }).on('line', line => {
  const command = JSON.parse(line, (_key, value) => value && value.type === 'Buffer' ? Buffer.from(value.data) : value)
  COMMANDS[command.do](command.client, command)
}).on('close', () => process.exit(0))
