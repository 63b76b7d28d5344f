<?php
namespace app\controller;

use support\Response;

/** Answers every request with the body and headers that the workload asks for. */
class IndexController
{
    private static ?array $headers = null;

    public function index(): Response
    {
        return new Response(200, self::$headers ??= self::wanted(), getenv('CEILING_BODY'));
    }

    private static function wanted(): array
    {
        $headers = ['Content-Type' => getenv('CEILING_TYPE')];
        foreach (array_filter(explode("\n", getenv('CEILING_HEADERS'))) as $line) {
            [$name, $value] = explode(': ', $line, 2);
            $headers[$name] = $value;
        }
        if (getenv('CEILING_CLOSE') === '1') {
            $headers['Connection'] = 'close';   // the framework closes, but would promise keep-alive
        }
        return $headers;
    }
}
