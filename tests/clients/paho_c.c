/* A client of paho C: it publishes to its own subscription, and waits for acknowledgement and message each time. */
#include <MQTTClient.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 20
#define TIMEOUT_MS 5000

static int failed(const char *step, int code) {
    printf("%s: %d\n", step, code);
    return 1;
}

int main(int argc, char **argv) {
    MQTTClient client;
    MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
    int code = argc == 3 ? MQTTClient_create(&client, argv[1], argv[2], MQTTCLIENT_PERSISTENCE_NONE, NULL) : -1;
    if (code) return failed("create", code);
    options.connectTimeout = 5;
    if ((code = MQTTClient_connect(client, &options))) return failed("connect", code);
    if ((code = MQTTClient_subscribe(client, argv[2], 1))) return failed("subscribe", code);
    for (int round = 0; round < ROUNDS; round++) {
        MQTTClient_deliveryToken token;
        MQTTClient_message *message = NULL;
        char *topic = NULL;
        int length = 0;
        if ((code = MQTTClient_publish(client, argv[2], 5, "hello", 1, 0, &token))) return failed("publish", code);
        if ((code = MQTTClient_waitForCompletion(client, token, TIMEOUT_MS))) return failed("acknowledged", code);
        code = MQTTClient_receive(client, &topic, &length, &message, TIMEOUT_MS);
        if (code || !message || message->payloadlen != 5) return failed("receive", code);
        MQTTClient_freeMessage(&message);
        MQTTClient_free(topic);
    }
    if ((code = MQTTClient_disconnect(client, TIMEOUT_MS))) return failed("disconnect", code);
    MQTTClient_destroy(&client);
    puts("ok");
    return 0;
}
