<?php
// The Swoole contestant: SWOOLE_BASE, one process for each worker, callbacks without coroutines.
$headers = ['Content-Type' => getenv('CEILING_TYPE')];
foreach (array_filter(explode("\n", getenv('CEILING_HEADERS'))) as $line) {
    [$name, $value] = explode(': ', $line, 2);
    $headers[$name] = $value;
}
$body = getenv('CEILING_BODY');

$server = new Swoole\Http\Server('127.0.0.1', (int) getenv('CEILING_PORT'), SWOOLE_BASE);
$server->set([
    'worker_num' => (int) getenv('CEILING_WORKERS'),
    'enable_coroutine' => false,
    'log_file' => getenv('WORK') . '/swoole.log',
]);
$server->on('request', static function ($request, $response) use ($headers, $body): void {
    foreach ($headers as $name => $value) {
        $response->header($name, $value);
    }
    $response->end($body);
});
$server->start();
