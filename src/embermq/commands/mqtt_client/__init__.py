"""`ember pub` and `ember sub`: an MQTT client on this project's own packets.

connection.py   one connection, as a blocking socket      options.py   which server, and who the client is
pub.py, sub.py  the commands                              text.py      a message as a line or as JSON
"""
